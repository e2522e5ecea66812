//! What the plain calls repeat of core's rules, held to core: random states and random calls, and for each the way that asks
//! core, which is undone, beside the one statement. Answers, rows and what observers are told must be the same.

mod claims;
mod ends;
mod starts;

use std::fmt::Write as _;

use std::sync::Arc;

use leasehold_core::session::SessionFence;
use leasehold_store::observe::Fact;
use leasehold_store::outcome::Outcome;
use tokio_postgres::Client;

use super::super::clock::Clocks;
use super::super::transaction::{Connection, Decided, Undone, Unlocked};
use super::Fixture;

const SEED: u64 = 20_261_130;
const STATES: u32 = 400;

/// Chance, the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }

    /// Mostly the usual; in one of `rare` something else.
    fn mostly<T: Copy>(&mut self, rare: u64, usual: T, others: &[T]) -> T {
        if self.below(rare) == 0 { self.of(others) } else { usual }
    }
}

impl Fixture<'_> {
    fn clocks(&self) -> Clocks {
        Clocks { told: Some(self.clock.clone()), watch: None }
    }
}

/// What is stored, but for the clocks of the database itself.
async fn rows(db: &Connection) -> Vec<String> {
    let tables = ["worker", "session", "project", "run", "attempt", "lease", "event", "event_digest"];
    let rows = tables.map(|table| format!("SELECT '{table} ' || row_to_json(t)::text FROM {table} t"));
    db.texts(&format!("{} ORDER BY 1", rows.join(" UNION ALL "))).await
}

/// What one way makes of a call: its answer if it is done now, what observers hear, and the rows.
type Made<T> = (Option<T>, Vec<Fact>, Vec<String>);

/// The way that asks core, undone afterwards.
async fn asking_core<T, R, W: Future<Output = Decided<T, R>>>(
    fixture: &Fixture<'_>,
    call: impl FnOnce(Unlocked) -> W,
) -> Made<T> {
    let connection = Arc::new(Connection::new(fixture.store.connect().await.unwrap()));
    // A state that contradicts itself is damage to this way: nothing is done then either.
    let answer = match call(Unlocked::new(connection.clone(), fixture.clocks())).await {
        Ok(Outcome::Applied(answer)) => Some(answer),
        Ok(Outcome::Replayed(_) | Outcome::Refused(_)) | Err(_) => None,
    };
    let rows = if answer.is_some() { rows(&connection).await } else { Vec::new() };
    connection.roll_back().await;
    (answer, connection.take_facts(), rows)
}

/// The one statement.
async fn plainly<T, R, P, W>(fixture: &Fixture<'_>, call: P) -> Made<T>
where
    P: FnOnce(Unlocked) -> W,
    W: Future<Output = Result<Option<Outcome<T, R>>, Undone>>,
{
    let connection = Arc::new(Connection::new(fixture.store.connect().await.unwrap()));
    let answer = match call(Unlocked::new(connection.clone(), fixture.clocks())).await {
        Ok(Some(Outcome::Applied(answer))) => Some(answer),
        Ok(Some(Outcome::Replayed(_) | Outcome::Refused(_))) => panic!("plain is what is done now"),
        Ok(None) => None,
        // A state that contradicts itself meets a unique index.
        Err(Undone::Certainly(_)) => {
            connection.roll_back().await;
            None
        }
        Err(Undone::Unknown(reason)) => panic!("{reason}"),
    };
    (answer, connection.take_facts(), rows(&connection).await)
}

/// Fails unless a plain call did what core would have done, and one that is not plain did nothing.
fn compare<T: std::fmt::Debug + PartialEq>(plain: &Made<T>, core: &Made<T>, before: &[String], why: &str) {
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|row| !those.contains(row)).cloned().collect()
    };
    let expected = if plain.0.is_some() {
        assert_eq!((&plain.0, &plain.1), (&core.0, &core.1), "{why}");
        &core.2[..]
    } else {
        before
    };
    assert!(
        plain.2 == expected,
        "only in one statement: {:#?}\nexpected instead: {:#?}\n{why}",
        only(&plain.2, expected),
        only(expected, &plain.2)
    );
}

async fn chaos(fixture: &Fixture<'_>) -> Client {
    let url = fixture.database.superuser_url();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    // No trigger and no foreign key is in the way of a state that took another way to come about.
    let free = "SET search_path TO leasehold; SET synchronous_commit TO off; SET session_replication_role TO replica";
    client.batch_execute(free).await.unwrap();
    client
}

/// Workers and their sessions, as they may be.
fn speakers(chance: &mut Chance, agents: &[SessionFence], now: i64) -> String {
    let mut sql = String::new();
    for agent in agents {
        write!(
            sql,
            "UPDATE worker SET state = '{}', (drain_by, drain_at) = ROW({}), current_session = {} WHERE id = '{}'; \
             UPDATE session SET state = '{}', max_runs = {}, slots = 0, expires_lease = {} WHERE id = '{}';",
            chance.mostly(20, "active", &["revoked", "deleted"]),
            chance.mostly(15, "NULL, NULL", &["'a person', 7"]),
            chance.mostly(25, format!("'{}'", agent.session).as_str(), &["NULL"]),
            agent.worker,
            chance.mostly(15, "active", &["draining", "offline"]),
            chance.mostly(2, 256, &[1, 2, 3]),
            chance.mostly(12, now + 60_000, &[now - 1, now, now + 1]),
            agent.session,
        )
        .unwrap();
    }
    sql
}
