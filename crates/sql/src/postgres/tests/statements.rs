//! How PostgreSQL carries the statements out: no call reads all runs, attempts, leases, events or log chunks there are.

use std::collections::BTreeSet;

use super::super::plans;
use super::Fixture;
use crate::scene::every_call;
use crate::test_server::TestServer;

/// Indexes that hold only what is waiting or alive: reading one from end to end is the work itself.
const LIVE: [&str; 10] = [
    "run_pending",
    "run_due",
    "run_held",
    "run_in_the_way",
    "task_trigger_owing",
    "attempt_passing",
    "attempt_unsettled",
    "attempt_may_live",
    "lease_active",
    "lease_active_worker",
];

/// Tables that grow with the installation's life.
const GROWING: [&str; 8] = ["run", "attempt", "lease", "event", "log_chunk", "audit", "session", "schedule_ledger"];

/// What is wrong with a plan: a growing table that is read from end to end.
fn problems(plan: &[String]) -> Vec<String> {
    let nodes: Vec<usize> = (0..plan.len()).filter(|line| plan[*line].contains("Scan")).collect();
    let mut problems = Vec::new();
    for node in nodes {
        let line = plan[node].trim_start_matches([' ', '-', '>']);
        let words: Vec<&str> = line.split(' ').collect();
        let after = |word: &str| words.iter().position(|w| *w == word).and_then(|at| words.get(at + 1)).copied();
        if line.starts_with("Seq Scan") && after("on").is_some_and(|table| GROWING.contains(&table)) {
            problems.push(line.to_owned());
        }
        let index = if line.starts_with("Bitmap Index Scan") { after("on") } else { after("using") };
        let conditions = plan[node + 1..].iter().take_while(|line| !line.contains("->"));
        let bounded = conditions.into_iter().any(|line| line.contains("Index Cond"));
        // Backwards or forwards along a key, up to a LIMIT, is how a page is read.
        let page = plan[..node].iter().any(|line| line.contains("Limit")) || line.contains("Backward");
        if let Some(index) = index.filter(|index| !bounded && !page && !LIVE.contains(index)) {
            problems.push(format!("all of {index}: {line}"));
        }
    }
    problems
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_scans_a_table_that_grows() {
    let Some(server) = TestServer::shared_or_skip("how statements are carried out") else { return };
    every_call(&Fixture::never_plainly(server).await.scene).await;
    let fixture = Fixture::on(server).await;
    every_call(&fixture.scene).await;
    let statements = plans::prepared();
    assert!(statements.len() > 60, "the scenario prepares the statements of every method: {}", statements.len());
    let mut found = Vec::new();
    // A plan for every value at once, as a long-lived connection has it; without statistics small tables would be read whole.
    let how = "SET plan_cache_mode TO force_generic_plan; SET enable_seqscan TO off; SET enable_bitmapscan TO off;";
    for sql in statements.iter().filter(|sql| !sql.contains("pg_logical_emit_message")) {
        let parameters = (1..=64).filter(|n| sql.contains(&format!("${n}"))).max().unwrap_or(0);
        let nulls = vec!["NULL"; parameters].join(", ");
        let nulls = if parameters == 0 { String::new() } else { format!("({nulls})") };
        let rows = fixture.sql(&format!("{how} PREPARE one AS {sql}; EXPLAIN (COSTS OFF) EXECUTE one{nulls}"));
        let plan: Vec<String> = rows.into_iter().filter_map(|mut row| row.remove(0)).collect();
        found.extend(problems(&plan).into_iter().map(|problem| format!("{problem}\n  in {sql}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// What functions of the schema do inside cannot be asked for: the server writes down how it carried it out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_of_a_function_scans_a_table_that_grows() {
    if TestServer::shared_or_skip("plans of functions").is_none() {
        return;
    }
    let server = TestServer::start_with(&[
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_nested_statements", "on"),
        ("plan_cache_mode", "force_generic_plan"),
        ("enable_seqscan", "off"),
        ("enable_bitmapscan", "off"),
    ])
    .unwrap();
    let asking = Fixture::never_plainly(&server).await;
    every_call(&asking.scene).await;
    asking.store.close().await;
    let fixture = Fixture::on(&server).await;
    every_call(&fixture.scene).await;
    let functions = fixture.sql(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'leasehold'::regnamespace AND proname <> 'never_changes' \
         AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql')",
    );
    fixture.store.close().await;
    fixture.until("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()", "1").await;
    let log = server.log();
    let plans = nested(&log);
    for function in functions.into_iter().filter_map(|mut row| row.remove(0)) {
        let within = format!("{function}(");
        assert!(plans.iter().any(|(context, _)| context.starts_with(&within)), "{function} was called");
    }
    let problems = |(context, plan): &(String, Vec<String>)| {
        let found = problems(plan);
        (!found.is_empty()).then(|| format!("{context}: {found:#?}\n{}", plan.join("\n")))
    };
    let found: BTreeSet<String> = plans.iter().filter_map(problems).collect();
    assert!(found.is_empty(), "{}", found.into_iter().collect::<Vec<_>>().join("\n"));
}

/// The plans in a server's log of what functions did, each with where it was.
fn nested(log: &str) -> Vec<(String, Vec<String>)> {
    let mut lines = log.lines().peekable();
    let mut plans = Vec::new();
    while let Some(line) = lines.next() {
        if !line.ends_with(" plan:") {
            continue;
        }
        let mut plan = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with('\t')) {
            plan.push(line[1..].to_owned());
        }
        let mut function = None;
        while let Some(line) = lines.next_if(|line| line.contains("CONTEXT:") || line.starts_with('\t')) {
            function = function.or(line.split_once("function "));
        }
        if let Some((_, function)) = function {
            plans.push((function.to_owned(), plan));
        }
    }
    plans
}

#[test]
fn a_plan_that_reads_everything_is_found() {
    let plan = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(problems(&plan("Seq Scan on run r\n  Filter: (task = $1)")).len(), 1);
    assert_eq!(problems(&plan("Index Scan using run_pkey on run r\n  Filter: (task = $1)")).len(), 1);
    assert!(problems(&plan("Index Scan using run_pkey on run r\n  Index Cond: (id = $1)")).is_empty());
    assert!(problems(&plan("Seq Scan on worker w")).is_empty());
}
