//! The same after a million runs, and beside a read transaction that does not end.
//!
//! What has ended stays in the tables; what was updated leaves dead rows, which nobody may remove while somebody's snapshot
//! is older than they are. The claims go the dispatcher's way here, by a look at the lanes, because the index of what waits
//! is where dead rows lie first.

use std::time::Duration;

use leasehold_core::id::RunId;
use leasehold_core::limits::{DISPATCH_CLAIMS, DISPATCH_PAGE};
use leasehold_store::call::LaneAfter;
use leasehold_store::port::Store as _;
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls};

use super::super::Fixture;
use super::crew::Crew;
use super::{heading, line, scene, server};
use crate::test_server::{Laps, TestDatabase};

/// How many callers and connections.
const CALLERS: usize = 8;

/// Runs that the copies are made of, so many at a time.
const TOGETHER: u64 = 100_000;

/// A number that whoever starts the measurement may set.
#[expect(clippy::disallowed_methods, reason = "the program that runs this test hands it over so")]
fn told(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// What was measured from one point in time to another.
#[derive(Default)]
struct Slice {
    looks: Laps,
    claims: Laps,
    ends: Laps,
    runs: usize,
}

impl Slice {
    fn append(&mut self, later: Self) {
        self.looks.append(later.looks);
        self.claims.append(later.claims);
        self.ends.append(later.ends);
        self.runs += later.runs;
    }
}

/// The heads that a dispatcher finds: a page of lanes, then as many runs of the first as it may claim in a cycle.
async fn look(crew: &Crew) -> Vec<RunId> {
    let store = &crew.scene().store;
    let lanes = store.lanes(None, DISPATCH_PAGE, 1).await.unwrap();
    let lane = lanes.into_iter().next().expect("runs wait");
    let first = lane.heads.first().expect("a live lane has a head").key();
    let mut found = vec![first.run];
    let after = vec![LaneAfter { lane: lane.key, after: Some(first) }];
    let more = store.heads(after, DISPATCH_CLAIMS - 1).await.unwrap().remove(0);
    found.extend(more.into_iter().map(|head| head.run));
    found
}

/// Runs come, are looked for, claimed and ended, for this long; in tenths of it.
async fn churn(crew: &Crew, span: Duration) -> Vec<Slice> {
    // As many again wait behind those that are found.
    crew.submit(2 * DISPATCH_CLAIMS / CALLERS).await;
    let begun = Instant::now();
    let mut slices: Vec<Slice> = Vec::new();
    for tenth in 1..=10 {
        let mut slice = Slice::default();
        while begun.elapsed() < span * tenth / 10 {
            let at = Instant::now();
            let found = look(crew).await;
            slice.looks.add(at.elapsed());
            assert_eq!(found.len(), DISPATCH_CLAIMS, "those that wait are found");
            let shares = found.chunks(DISPATCH_CLAIMS / CALLERS).map(<[_]>::to_vec).collect();
            let (held, claims) = crew.claim(shares).await;
            slice.claims.append(claims);
            crew.start(&held).await;
            slice.ends.append(crew.end(held).await);
            slice.runs += DISPATCH_CLAIMS;
            crew.submit(DISPATCH_CLAIMS / CALLERS).await;
        }
        // On a machine that is busy elsewhere a cycle may take longer than that.
        if slice.runs > 0 {
            slices.push(slice);
        }
    }
    slices
}

/// Prints what became of a churn: all of it, and how the last tenth compares with the first.
fn report(state: &str, slices: Vec<Slice>) {
    let [first, last] = [slices.first(), slices.last()].map(|slice| {
        let slice = slice.expect("a churn has tenths");
        (slice.looks.p50(), slice.claims.p50(), slice.ends.p50())
    });
    let mut all = Slice::default();
    for slice in slices {
        all.append(slice);
    }
    let moved = |from: f64, to: f64| format!("{from:.2} → {to:.2}");
    line(&[
        state.to_owned(),
        all.runs.to_string(),
        format!("{:.0}", all.claims.per_second()),
        format!("{:.2}", all.claims.p50()),
        format!("{:.2}", all.claims.p99()),
        moved(first.1, last.1),
        format!("{:.0}", all.ends.per_second()),
        moved(first.2, last.2),
        moved(first.0, last.0),
        format!("{:.2}", all.looks.p99()),
    ]);
}

/// A read transaction, as a report or a backup that hangs would hold one.
async fn reader(fixture: &Fixture<'_>) -> Client {
    let (client, connection) = tokio_postgres::connect(&fixture.database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT count(*) FROM leasehold.project";
    client.batch_execute(begin).await.unwrap();
    client
}

/// A table, what each copy of a row has of its own, and which rows are copied.
type Copied<'t> = (&'t str, &'t [(&'t str, &'t str)], String);

/// Makes copies of everything that one run left, under other ids: rows as the product wrote them, whatever columns there are.
fn copy(fixture: &Fixture<'_>, run: RunId, copies: u64) {
    const RUN: &str = "('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid";
    const ATTEMPT: &str = "('00000000-0000-7000-8001-' || lpad(to_hex(n), 12, '0'))::uuid";
    const OFFER: &str = "('00000000-0000-7000-8002-' || lpad(to_hex(n), 12, '0'))::uuid";
    const TOKEN: &str = "sha256(n::text::bytea)";
    let of_run = format!("o.run = '{run}'");
    let of_attempt = format!("o.attempt IN (SELECT id FROM attempt WHERE run = '{run}')");
    let tables: [Copied<'_>; 6] = [
        ("run", &[("id", RUN)], format!("o.id = '{run}'")),
        ("attempt", &[("id", ATTEMPT), ("run", RUN)], of_run.clone()),
        ("lease", &[("attempt", ATTEMPT), ("run", RUN), ("offer", OFFER), ("token", TOKEN)], of_run.clone()),
        ("event", &[("run", RUN), ("attempt", ATTEMPT)], of_run),
        ("log_chunk", &[("attempt", ATTEMPT)], of_attempt),
        ("audit", &[("subject", "'run/' || md5(n::text)")], format!("o.subject = 'run/{run}'")),
    ];
    eprintln!("{copies} ended runs …");
    std::thread::scope(|scope| {
        for (table, others, which) in &tables {
            scope.spawn(move || copy_rows(&fixture.database, table, others, which, copies));
        }
    });
}

/// Makes copies of the rows of one table that are `of` a run, with other values in some columns.
fn copy_rows(database: &TestDatabase<'_>, table: &str, others: &[(&str, &str)], of: &str, copies: u64) {
    let columns = database.query(&format!(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'leasehold' AND table_name = '{table}' \
         AND is_identity = 'NO' AND is_generated = 'NEVER'"
    ));
    let columns: Vec<String> = columns.unwrap().into_iter().flatten().flatten().collect();
    let of_copy = |column: &String| match others.iter().find(|(name, _)| name == column) {
        // What was never set is not set in the copy either.
        Some((_, value)) => format!("CASE WHEN o.{column} IS NOT NULL THEN {value} END"),
        None => format!("o.{column}"),
    };
    let (names, values) = (columns.join(", "), columns.iter().map(of_copy).collect::<Vec<_>>().join(", "));
    for begin in (0..copies).step_by(usize::try_from(TOGETHER).unwrap()) {
        let end = (begin + TOGETHER).min(copies) - 1;
        // References are those of the original, and need no look at each of them.
        let copied = database.query(&format!(
            "SET search_path TO leasehold; SET session_replication_role TO replica; SET synchronous_commit TO off; \
             INSERT INTO {table} ({names}) SELECT {values} FROM {table} o, generate_series({begin}, {end}) n WHERE {of}"
        ));
        copied.unwrap();
    }
    eprintln!("{copies} ended runs: {table}");
}

/// What was written in place and what lies dead since the counters were set to nothing, by table.
fn dead_rows(fixture: &Fixture<'_>) -> Vec<Vec<String>> {
    let counted = "SELECT relname, n_live_tup, n_tup_upd, round(100.0 * n_tup_hot_upd / nullif(n_tup_upd, 0)), n_dead_tup, \
                   pg_size_pretty(pg_table_size(relid)), pg_size_pretty(pg_indexes_size(relid)) FROM pg_stat_user_tables \
                   WHERE schemaname = 'leasehold' AND n_tup_upd > 0 ORDER BY n_tup_upd DESC LIMIT 5";
    let rows = fixture.sql(counted).into_iter();
    rows.map(|row| row.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_owned())).collect()).collect()
}

/// A run that went its way to the end.
async fn ended_run(crew: &Crew) -> RunId {
    let (runs, _) = crew.submit(1).await;
    let run = runs[0][0];
    let (held, _) = crew.claim(runs).await;
    crew.start(&held).await;
    crew.end(held).await;
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: `cargo xtask bench postgres`"]
async fn b_what_is_left_of_it_after_a_million_runs() {
    let Some(server) = server() else { return };
    let (ended, seconds) = (told("LEASEHOLD_BENCH_ENDED", 1_000_000), told("LEASEHOLD_BENCH_SECONDS", 60));
    println!("\n## The same when {ended} runs have ended, and beside an open read transaction\n");
    println!(
        "{CALLERS} connections, {seconds} s each; {DISPATCH_CLAIMS} claims after each look at the lanes. With an arrow:"
    );
    println!("p50 in the first and in the last tenth of the time, in ms.\n");
    let columns =
        ["tables", "runs", "claims/s", "p50, ms", "p99, ms", "claim →", "ends/s", "end →", "look →", "look p99, ms"];
    heading(&columns);
    let fixture = Fixture::on(&server).await;
    // Of the product's connections, those that are measured are the only ones.
    fixture.store.close().await;
    let mut dead = Vec::new();
    let states = [("new", "new", false), ("aged", "aged", false), ("aged, transaction open", "beside", true)];
    for (state, name, reads) in states {
        let crew = Crew::of(scene(&fixture, CALLERS).await, CALLERS, name).await;
        if state == "aged" {
            copy(&fixture, ended_run(&crew).await, ended);
        }
        eprintln!("vacuum …");
        // Each a statement of its own: neither goes into a transaction.
        fixture.database.query("VACUUM (ANALYZE)").unwrap();
        fixture.database.query("CHECKPOINT").unwrap();
        fixture.sql("SELECT pg_stat_reset()");
        let reader = if reads { Some(reader(&fixture).await) } else { None };
        eprintln!("{state}: {seconds} s …");
        report(state, churn(&crew, Duration::from_secs(seconds)).await);
        crew.scene().store.close().await;
        drop(crew);
        // Connections tell what they counted when they end.
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND application_name = 'leasehold'";
        fixture.until(open, "0").await;
        dead.extend(dead_rows(&fixture).into_iter().map(|row| [vec![state.to_owned()], row].concat()));
        drop(reader);
    }
    println!("\nWhat these runs wrote, and what of it lies dead. HOT: in its page, with no new entry in any index.\n");
    heading(&["tables", "rows of", "live", "updates", "HOT, %", "dead", "table", "indexes"]);
    for row in &dead {
        line(row);
    }
    println!();
}
