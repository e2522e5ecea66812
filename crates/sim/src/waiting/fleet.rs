//! Waiting workers, as many as are asked for, and what is measured with them: how soon a run is at one of them.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use leasehold_core::id::RunId;
use leasehold_core::join::JoinToken;
use leasehold_sql::test_server::Laps;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::joining::join;
use super::operator::Operator;
use super::worker::{Teller, Told, Worker};
use crate::eventually::PATIENCE;

/// Machines that join at the same time: so few that what joining takes of the control plane's memory does not pile up.
const JOINING: usize = 4;

/// Workers that wait at one control plane.
pub(super) struct Fleet {
    operator: Operator,
    ingress: SocketAddrV4,
    workers: usize,
    tell: Teller,
    told: UnboundedReceiver<Result<Told>>,
    beats: Arc<AtomicU64>,
}

/// How soon runs were at a waiting worker, one run at a time.
#[derive(Debug, Default)]
pub(super) struct Dispatched {
    /// From the request to its answer.
    pub(super) answered: Laps,
    /// From that answer to the offer; nothing where the offer came first.
    pub(super) after_answer: Laps,
    /// From the request to the offer.
    pub(super) offered: Laps,
}

impl Fleet {
    /// Nobody yet, at the control plane with this operator and this ingress.
    pub(super) fn new(operator: Operator, ingress: SocketAddrV4) -> Self {
        let (tell, told) = unbounded_channel();
        Self { operator, ingress, workers: 0, tell, told, beats: Arc::default() }
    }

    /// How many beats were answered so far, the first of each session aside.
    pub(super) fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Grows to so many workers; returns when all of them wait.
    pub(super) async fn grow(&mut self, to: usize) -> Result<()> {
        let mut joining: JoinSet<Result<()>> = JoinSet::new();
        for number in self.workers..to {
            let body = json!({ "worker": format!("waiting-{number}") });
            let enrollment = self.operator.post("/api/v1/enrollments", &body).await?;
            let token = enrollment["token"].as_str().context("an enrollment has a token")?;
            let token = JoinToken::parse(token).map_err(|error| anyhow::anyhow!(error))?;
            if joining.len() >= JOINING {
                joining.join_next().await.context("some are joining")???;
            }
            let (ingress, tell, beats) = (self.ingress, self.tell.clone(), Arc::clone(&self.beats));
            joining.spawn(async move {
                let (identity, ticket) = join(number, ingress, &token).await?;
                let (worker, version) = Worker::register(&identity, &ticket).await?;
                tokio::spawn(worker.live(version, tell, beats));
                Ok(())
            });
        }
        while let Some(joined) = joining.join_next().await {
            joined??;
        }
        self.workers = to;
        self.all_wait().await
    }

    /// Waits until every worker waits; fails with the word of one that could not go on.
    pub(super) async fn all_wait(&mut self) -> Result<()> {
        let waiting = self.operator.until_waiting(self.workers).await;
        if let Ok(told) = self.told.try_recv() {
            bail!("an idle worker told {:?}", told?);
        }
        waiting
    }

    /// Submits runs one at a time, each when the one before has ended and every worker waits again.
    pub(super) async fn dispatch(&mut self, runs: usize) -> Result<Dispatched> {
        let mut dispatched = Dispatched::default();
        let body = json!({ "revision": { "command": { "argv": ["true"] } } });
        for _ in 0..runs {
            self.all_wait().await?;
            self.operator.warm().await?;
            let begun = Instant::now();
            let answer = self.operator.post("/api/v1/runs", &body).await?;
            let answered = Instant::now();
            let run: RunId = answer["id"].as_str().context("a run has an id")?.parse()?;
            let Told::Offered(offered, at) = self.next().await? else { bail!("run {run} ended before it was offered") };
            ensure!(offered == run, "run {run} was submitted, and {offered} offered");
            dispatched.answered.add(answered - begun);
            dispatched.after_answer.add(at.saturating_duration_since(answered));
            dispatched.offered.add(at - begun);
            let Told::Ended(ended) = self.next().await? else { bail!("a second offer came before run {run} ended") };
            ensure!(ended == run, "run {run} was carried out, and {ended} ended");
        }
        Ok(dispatched)
    }

    async fn next(&mut self) -> Result<Told> {
        let told = tokio::time::timeout(PATIENCE, self.told.recv()).await.context("no worker tells anything")?;
        told.context("no worker is left")?
    }
}
