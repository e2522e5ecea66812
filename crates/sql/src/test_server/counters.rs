//! What a server was made to do, by its own counters: for measurements of what ought to do nothing.
//!
//! The promise is that an idle worker writes nothing beyond its beats, and that a replica's beats are written together: every
//! table that was touched is told, so that what breaks it has a name.

use std::collections::BTreeMap;

use super::{Result, TestServer, TestServerError};

/// The counters of a server, and of the tables of one of its databases, at a moment.
#[derive(Debug, Clone)]
pub struct Counters {
    /// Transactions that wrote; the server tells a notification from a row as little as we do.
    pub wrote: u64,
    /// Transactions of the database in all, those that only read included.
    pub all: u64,
    /// Records of the write-ahead log, of the whole server.
    pub records: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Rows inserted, updated in their page, updated in another way, and deleted, by table.
    pub tables: BTreeMap<String, [u64; 4]>,
}

impl Counters {
    /// Reads them at the beginning: those of the tables by a transaction in the database, which is counted before the others are.
    pub fn before(server: &TestServer, database: &str) -> Result<Self> {
        let tables = tables(server, database)?;
        Self::with(server, database, tables)
    }

    /// The same at the end, where the database's own count comes first.
    pub fn after(server: &TestServer, database: &str) -> Result<Self> {
        let counters = Self::with(server, database, BTreeMap::new())?;
        Ok(Self { tables: tables(server, database)?, ..counters })
    }

    fn with(server: &TestServer, database: &str, tables: BTreeMap<String, [u64; 4]>) -> Result<Self> {
        let asked = format!(
            "SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = '{database}'), \
             (SELECT wal_records FROM pg_stat_wal), pg_current_wal_insert_lsn() - '0/0'"
        );
        let rows = server.query("postgres", &asked)?;
        let [all, records, bytes] = numbers(rows.first().map_or(&[], Vec::as_slice))?;
        Ok(Self { wrote: server.writes()?, all, records, bytes, tables })
    }

    /// What was counted since `earlier`, tables that nothing happened to left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let tables = self.tables.iter().map(|(table, counts)| {
            let before = earlier.tables.get(table).copied().unwrap_or_default();
            (table.clone(), std::array::from_fn(|at| counts[at].saturating_sub(before[at])))
        });
        Self {
            wrote: self.wrote.saturating_sub(earlier.wrote),
            all: self.all.saturating_sub(earlier.all),
            records: self.records.saturating_sub(earlier.records),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            tables: tables.filter(|(_, counts): &(String, [u64; 4])| counts.iter().any(|count| *count > 0)).collect(),
        }
    }
}

fn tables(server: &TestServer, database: &str) -> Result<BTreeMap<String, [u64; 4]>> {
    let asked = "SELECT n_tup_ins, n_tup_hot_upd, n_tup_upd - n_tup_hot_upd, n_tup_del, relname \
                 FROM pg_stat_user_tables WHERE schemaname = 'leasehold'";
    let rows = server.query(database, asked)?.into_iter();
    rows.map(|row| {
        let nameless = || TestServerError("a table has no name".to_owned());
        let (name, counts) = row.split_last().ok_or_else(nameless)?;
        Ok((name.clone().ok_or_else(nameless)?, numbers(counts)?))
    })
    .collect()
}

fn numbers<const N: usize>(cells: &[Option<String>]) -> Result<[u64; N]> {
    let strange = || TestServerError(format!("it counts {cells:?}, where {N} integers were asked for"));
    let numbers = cells.iter().map(|cell| cell.as_deref().unwrap_or("0").parse());
    let numbers: Vec<u64> = numbers.collect::<std::result::Result<_, _>>().map_err(|_| strange())?;
    numbers.try_into().map_err(|_| strange())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_told() {
        let earlier = Counters {
            wrote: 5,
            all: 50,
            records: 7,
            bytes: 700,
            tables: [("run".to_owned(), [1, 2, 3, 4]), ("session".to_owned(), [0, 5, 0, 0])].into(),
        };
        let mut later = earlier.clone();
        later.wrote = 6;
        later.tables.insert("session".to_owned(), [0, 9, 1, 0]);
        later.tables.insert("announcement".to_owned(), [1, 0, 0, 0]);
        let since = later.since(&earlier);
        assert_eq!((since.wrote, since.all, since.records, since.bytes), (1, 0, 0, 0));
        let told: Vec<_> = since.tables.into_iter().collect();
        assert_eq!(told, [("announcement".to_owned(), [1, 0, 0, 0]), ("session".to_owned(), [0, 4, 1, 0])]);
    }

    #[test]
    fn a_counter_that_was_never_set_is_nothing_and_a_strange_one_an_error() {
        assert_eq!(numbers::<2>(&[None, Some("7".to_owned())]).unwrap(), [0, 7]);
        assert!(numbers::<1>(&[Some("seven".to_owned())]).is_err());
        assert!(numbers::<2>(&[None]).is_err());
    }
}
