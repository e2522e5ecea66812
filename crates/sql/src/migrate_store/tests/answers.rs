//! Everything that a store answers, in words: two stores that hold the same say the same.

use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::run::RunState;
use leasehold_store::call::{AuditPage, EventsAfter, LaneAfter, LedgerPage, RunFilter, TriggersAfter};
use leasehold_store::port::Store;

/// What `store` answers to every question of the port, about everything in it.
pub(super) async fn of(store: &impl Store) -> Vec<String> {
    let mut said = Vec::new();
    let mut say = |what: &str, answer: &dyn std::fmt::Debug| said.push(format!("{what}: {answer:#?}"));
    say("installation", &store.installation().await.unwrap().map(|found| (found.trust_domain, found.ca_certificate)));
    say("token", &store.find_api_token(Digest::of(Domain::ApiToken, b"secret")).await.unwrap());
    for project in store.projects(None, 1000).await.unwrap() {
        say("project", &project);
        let name = project.project.name;
        say("the same", &store.project(&name).await.unwrap());
        for view in store.tasks(&name, None, 1000).await.unwrap() {
            let task = view.task.name.clone();
            say("task", &view);
            say("history", &store.task_history(&name, &task, None, 1000).await.unwrap());
            let page = LedgerPage { project: name.clone(), task, trigger: None, before: None };
            say("ledger", &store.ledger(page, 1000).await.unwrap());
        }
        let page = TriggersAfter { project: name, task: None, after: None };
        say("triggers", &store.triggers(page, 1000).await.unwrap());
    }
    let lanes = store.lanes(None, 1000, 1000).await.unwrap();
    let of = lanes.iter().map(|lane| LaneAfter { lane: lane.key.clone(), after: None }).collect();
    say("heads", &store.heads(of, 1000).await.unwrap());
    say("lanes", &lanes);
    for worker in store.workers(None, 1000).await.unwrap() {
        say("worker", &worker);
        say("the same", &store.worker(&worker.worker.id).await.unwrap());
    }
    let runs = store.runs(RunFilter::default(), 1000).await.unwrap();
    assert!(runs.len() < 1000, "more than are looked at");
    let lost = RunFilter { states: vec![RunState::Lost], ..RunFilter::default() };
    say("lost", &store.runs(lost, 1000).await.unwrap());
    for summary in runs {
        say("summary", &summary);
        let run = store.run(summary.run.id).await.unwrap().unwrap();
        let events = EventsAfter { run: summary.run.id, after: None };
        say("events", &store.events(events, 1000).await.unwrap());
        say("facts", &store.run_facts(summary.run.id, None, 1000).await.unwrap());
        say("prefix", &store.runs_by_prefix(&summary.run.id.to_string()[..20]).await.unwrap());
        for attempt in &run.attempts {
            let log = store.read_log(attempt.id, 0, usize::MAX >> 33).await.unwrap();
            say("log", &log.map(|page| (page.bytes.len(), Digest::of(Domain::Log, &page.bytes))));
        }
        say("run", &run);
    }
    say("statistics", &store.statistics().await.unwrap());
    said
}

/// What its audit says, but for the lines that `but` names.
pub(super) async fn audit(store: &impl Store, but: &str) -> Vec<String> {
    let entries = store.audit(AuditPage::Oldest { after: None }, 10_000).await.unwrap();
    entries.iter().filter(|entry| entry.action != but).map(|entry| format!("{entry:?}")).collect()
}
