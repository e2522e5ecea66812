//! Workers that take runs through their whole life at the port, a step of all of them at a time.

use std::sync::Arc;

use leasehold_core::canonical::Value;
use leasehold_core::id::RunId;
use leasehold_core::session::SessionFence;
use leasehold_store::call::{AcknowledgeRunning, AppendLog};
use leasehold_store::port::Store as _;
use leasehold_store::view::Grant;

use super::super::PostgresStore;
use super::timed::timed;
use crate::scene::{Scene, exited, revision, running, step};
use crate::test_server::Laps;

/// What a job has said.
const LOG: &[u8] = &[b'.'; 200];

/// Workers with a session each, which call at the same time.
pub(super) struct Crew {
    scene: Arc<Scene<PostgresStore>>,
    sessions: Vec<SessionFence>,
}

/// Runs under their leases, by the worker that holds them.
pub(super) type Held = Vec<Vec<(SessionFence, Grant)>>;

impl Crew {
    /// A crew of so many; every connection of the store has prepared its statements.
    pub(super) async fn of(scene: Scene<PostgresStore>, workers: usize, name: &str) -> Self {
        let (scene, mut sessions) = (Arc::new(scene), Vec::new());
        for worker in 0..workers {
            sessions.push(scene.agent(&format!("{name}-{worker}")).await);
        }
        let crew = Self { scene, sessions };
        for _ in 0..3 {
            let (runs, _) = crew.submit(2).await;
            let (held, _) = crew.claim(runs).await;
            crew.start(&held).await;
            crew.end(held).await;
        }
        crew
    }

    pub(super) fn scene(&self) -> &Scene<PostgresStore> {
        &self.scene
    }

    /// Submits runs, `each` by every caller.
    pub(super) async fn submit(&self, each: usize) -> (Vec<Vec<RunId>>, Laps) {
        let variables = (0..20).map(|n| (format!("VARIABLE_{n}"), Value::Text(format!("value {n}"))));
        let revision = revision(&[("env", Value::Map(variables.collect()))]);
        let scene = self.scene.clone();
        let submit = move |revision| {
            let scene = scene.clone();
            async move { scene.admit(revision).await }
        };
        timed(vec![vec![revision; each]; self.sessions.len()], submit).await
    }

    /// Claims runs; the first part of them goes to the first worker.
    pub(super) async fn claim(&self, runs: Vec<Vec<RunId>>) -> (Held, Laps) {
        let of_worker = |(session, runs): (&SessionFence, Vec<RunId>)| {
            runs.into_iter().map(|run| (session.clone(), run)).collect::<Vec<_>>()
        };
        let scene = self.scene.clone();
        let claim = move |(session, run): (SessionFence, RunId)| {
            let scene = scene.clone();
            async move {
                let grant = scene.claim(&session, run).await;
                (session, grant)
            }
        };
        timed(self.sessions.iter().zip(runs).map(of_worker).collect(), claim).await
    }

    /// Reports them as starting, running and talking.
    pub(super) async fn start(&self, held: &Held) {
        let scene = self.scene.clone();
        let start = move |(session, grant): (SessionFence, Grant)| {
            let scene = scene.clone();
            async move {
                let step = step(&session, &grant);
                scene.store.acknowledge_starting(step.clone()).await.unwrap().into_result().unwrap();
                let call = AcknowledgeRunning { step: step.clone(), call: running(&grant) };
                scene.store.acknowledge_running(call).await.unwrap().into_result().unwrap();
                let call = AppendLog { step, offset: 0, bytes: LOG.to_vec() };
                scene.store.append_log(call).await.unwrap().into_result().unwrap();
            }
        };
        timed(held.clone(), start).await;
    }

    /// Ends them.
    pub(super) async fn end(&self, held: Held) -> Laps {
        let scene = self.scene.clone();
        let end = move |(session, grant): (SessionFence, Grant)| {
            let scene = scene.clone();
            async move {
                let call = exited(&step(&session, &grant), &grant, 0, LOG);
                scene.store.end(call).await.unwrap().into_result().unwrap();
            }
        };
        timed(held, end).await.1
    }
}
