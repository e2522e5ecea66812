//! Reading: runs and workers, one or a page, and what an abbreviated run id means.

use leasehold_core::id::{RunId, WorkerId};
use leasehold_core::limits;
use leasehold_store::call::RunFilter;
use leasehold_store::view::{RunSummary, RunView, WorkerView};

use crate::error::{Denied, OperatorResult, ServiceError};
use crate::plane::ControlPlane;

impl ControlPlane {
    /// The run that `prefix` abbreviates: the beginning of its id, of which there is only one.
    pub async fn resolve_run(&self, prefix: &str) -> OperatorResult<RunId> {
        let lower = prefix.to_ascii_lowercase();
        if lower.is_empty() || lower.len() > 36 || !lower.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
            return Err(ServiceError::Refused(Denied::Invalid {
                field: "run".to_owned(),
                got: prefix.chars().take(64).collect(),
                allowed: "a run id, or the beginning of one: 0-9, a-f and -".to_owned(),
            }));
        }
        let matches = self.store().runs_by_prefix(&lower).await?;
        match matches[..] {
            [] => Err(ServiceError::Refused(Denied::not_found("run", &prefix))),
            [run] => Ok(run),
            _ => Err(ServiceError::Refused(Denied::Ambiguous { prefix: prefix.to_owned(), matches })),
        }
    }

    /// One run with everything a page shows.
    pub async fn run_view(&self, run: RunId) -> OperatorResult<RunView> {
        self.store().run(run).await?.ok_or_else(|| ServiceError::Refused(Denied::not_found("run", &run)))
    }

    /// A page of runs, newest first; at most [`limits::PAGE`] whatever `limit` says. The last one's id is the next page's
    /// `before`.
    pub async fn runs(&self, filter: RunFilter, limit: usize) -> OperatorResult<Vec<RunSummary>> {
        Ok(self.store().runs(filter, limit.clamp(1, limits::PAGE)).await?)
    }

    /// One worker.
    pub async fn worker(&self, worker: &WorkerId) -> OperatorResult<WorkerView> {
        self.store().worker(worker).await?.ok_or_else(|| ServiceError::Refused(Denied::not_found("worker", worker)))
    }

    /// A page of workers in id order; at most [`limits::PAGE`] whatever `limit` says. The last one's id is the next
    /// page's `after`.
    pub async fn workers(&self, after: Option<WorkerId>, limit: usize) -> OperatorResult<Vec<WorkerView>> {
        Ok(self.store().workers(after, limit.clamp(1, limits::PAGE)).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{World, plain};

    #[tokio::test]
    async fn a_prefix_names_one_run_or_says_why_not() {
        let world = World::new().await;
        let (one, other) = (world.submit(plain()).await, world.submit(plain()).await);
        let text = one.to_string();
        assert_eq!(world.plane.resolve_run(&text).await, Ok(one));
        assert_eq!(world.plane.resolve_run(&text.to_uppercase()).await, Ok(one));
        let shared = text.bytes().zip(other.to_string().bytes()).take_while(|(a, b)| a == b).count();
        assert_eq!(world.plane.resolve_run(&text[..=shared]).await, Ok(one));
        match world.plane.resolve_run(&text[..shared]).await {
            Err(ServiceError::Refused(Denied::Ambiguous { matches, .. })) => assert_eq!(matches, [one, other]),
            answer => panic!("not ambiguous: {answer:?}"),
        }
        let unknown = world.plane.resolve_run("ffffffff").await;
        assert!(matches!(unknown, Err(ServiceError::Refused(Denied::NotFound { what: "run", .. }))));
        for bad in ["", "%", "_", "xyz", &"a".repeat(37)] {
            let refused = world.plane.resolve_run(bad).await;
            assert!(matches!(refused, Err(ServiceError::Refused(Denied::Invalid { .. }))), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_page_is_never_longer_than_a_page_and_goes_on_where_the_last_ended() {
        let world = World::new().await;
        let mut runs = Vec::new();
        for _ in 0..limits::PAGE + 5 {
            runs.push(world.submit(plain()).await);
        }
        let first = world.plane.runs(RunFilter::default(), usize::MAX).await.unwrap();
        assert_eq!(first.len(), limits::PAGE);
        let before = first.last().map(|summary| summary.run.id);
        let rest = world.plane.runs(RunFilter { before, ..RunFilter::default() }, usize::MAX).await.unwrap();
        let mut seen: Vec<_> = first.iter().chain(&rest).map(|summary| summary.run.id).collect();
        seen.reverse();
        assert_eq!(seen, runs, "newest first, each once");
    }
}
