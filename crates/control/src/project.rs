//! What a person does to a project: make it, limit it, delete it. Decided by [`leasehold_core::project`].

use leasehold_core::id::ProjectName;
use leasehold_core::limits;
use leasehold_core::project::Settings;
use leasehold_store::call::{CreateProject, DeleteProject, SetProject};
use leasehold_store::outcome::Outcome;
use leasehold_store::port::Unmet;
use leasehold_store::view::ProjectView;

use crate::admit::check_key;
use crate::error::{Denied, OperatorResult, ServiceError};
use crate::plane::ControlPlane;
use crate::principal::Caller;

/// What became of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectChanged {
    /// Whether it changed anything; otherwise it was so before.
    pub changed: bool,
    /// The project as it is then.
    pub project: ProjectView,
}

impl ControlPlane {
    /// Makes a project, with a limit of runs at once if one is said. With a key, the same request again finds the project as
    /// it is by then.
    pub async fn create_project(
        &self,
        caller: &Caller,
        name: ProjectName,
        concurrency: Option<u32>,
        idempotency_key: Option<String>,
    ) -> OperatorResult<ProjectChanged> {
        check(concurrency).map_err(ServiceError::Refused)?;
        idempotency_key.as_deref().map_or(Ok(()), check_key).map_err(ServiceError::Refused)?;
        let call = CreateProject { actor: caller.actor.clone(), name: name.clone(), concurrency, idempotency_key };
        let outcome = self.store().create_project(call).await?;
        self.project_changed(caller, &name, "created", outcome)
    }

    /// Limits how many runs of a project may hold a place at once; none lifts the limit. What holds a place keeps it. With
    /// `seen`, settings that somebody else has changed since are not overwritten.
    pub async fn set_project(
        &self,
        caller: &Caller,
        name: ProjectName,
        concurrency: Option<u32>,
        seen: Option<Settings>,
    ) -> OperatorResult<ProjectChanged> {
        check(concurrency).map_err(ServiceError::Refused)?;
        let call = SetProject { actor: caller.actor.clone(), name: name.clone(), concurrency, seen };
        let outcome = self.store().set_project(call).await?;
        self.project_changed(caller, &name, "set", outcome)
    }

    /// Deletes a project of which no run is open; what has ended stays. With `seen`, one that somebody else has changed since
    /// is not deleted. Answers whether that changed anything.
    pub async fn delete_project(
        &self,
        caller: &Caller,
        name: ProjectName,
        seen: Option<Settings>,
    ) -> OperatorResult<bool> {
        let call = DeleteProject { actor: caller.actor.clone(), name: name.clone(), seen };
        let outcome = self.store().delete_project(call).await?;
        let changed = outcome.is_applied();
        outcome.into_result().map_err(|unmet| ServiceError::Refused(Denied::of(&unmet, &name)))?;
        tracing::info!(project = %name, actor = %caller.actor, origin = %caller.origin, changed, "project deleted");
        Ok(changed)
    }

    /// One project.
    pub async fn project(&self, name: &ProjectName) -> OperatorResult<ProjectView> {
        self.store().project(name).await?.ok_or_else(|| ServiceError::Refused(Denied::not_found("project", name)))
    }

    /// A page of projects in the order of their names; at most [`limits::PAGE`] whatever `limit` says. The last one's name
    /// is the next page's `after`.
    pub async fn projects(&self, after: Option<ProjectName>, limit: usize) -> OperatorResult<Vec<ProjectView>> {
        Ok(self.store().projects(after, limit.clamp(1, limits::PAGE)).await?)
    }

    fn project_changed(
        &self,
        caller: &Caller,
        name: &ProjectName,
        verb: &str,
        outcome: Outcome<ProjectView, Unmet>,
    ) -> OperatorResult<ProjectChanged> {
        let changed = outcome.is_applied();
        let project = outcome.into_result().map_err(|unmet| ServiceError::Refused(Denied::of(&unmet, name)))?;
        tracing::info!(project = %name, actor = %caller.actor, origin = %caller.origin, changed, "project {verb}");
        // A higher limit has places for what waits.
        self.hints().dispatch();
        Ok(ProjectChanged { changed, project })
    }
}

fn check(concurrency: Option<u32>) -> Result<(), Denied> {
    match concurrency {
        Some(limit) if limit == 0 || limit > limits::CONCURRENCY_MAX => Err(Denied::Invalid {
            field: "concurrency".to_owned(),
            got: limit.to_string(),
            allowed: format!("1 to {}, or none for any number", limits::CONCURRENCY_MAX),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{World, caller, plain};

    #[tokio::test(start_paused = true)]
    async fn a_higher_limit_wakes_what_waits_at_once() {
        let world = World::new().await;
        let running = world.start();
        let agent = world.agent("nas", 2).await;
        world.limit_project(Some(1)).await;
        let first = agent.pull(world.asks(1), limits::PULL_WAIT);
        world.submit(plain()).await;
        first.await.unwrap();
        let second = world.submit(plain()).await;
        let pull = tokio::spawn(agent.pull(world.asks(1), limits::PULL_WAIT));
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        assert!(!pull.is_finished(), "the one place is held");
        let began = tokio::time::Instant::now();
        assert!(world.plane.set_project(&caller(), ProjectName::default(), Some(2), None).await.unwrap().changed);
        assert_eq!(crate::fixture::granted(&pull.await.unwrap().unwrap())[0].run, second);
        assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
        running.stop().await;
    }

    #[tokio::test]
    async fn what_cannot_be_is_refused_in_words() {
        let world = World::new().await;
        let lab = || "lab".parse::<ProjectName>().unwrap();
        for limit in [0, limits::CONCURRENCY_MAX + 1] {
            let refused = world.plane.create_project(&caller(), lab(), Some(limit), None).await.unwrap_err();
            assert!(refused.to_string().contains(&format!("concurrency: got {limit}")), "{refused}");
        }
        assert_eq!(world.plane.project(&lab()).await, Err(ServiceError::Refused(Denied::not_found("project", &lab()))));
        assert!(world.plane.create_project(&caller(), lab(), Some(2), None).await.unwrap().changed);
        assert!(!world.plane.create_project(&caller(), lab(), Some(2), None).await.unwrap().changed);
        let refused = world.plane.create_project(&caller(), lab(), Some(3), None).await.unwrap_err();
        assert!(refused.to_string().contains("with another limit"), "{refused}");
        assert_eq!(world.plane.projects(None, 64).await.unwrap().len(), 2, "and the one of everybody");
        assert!(world.plane.delete_project(&caller(), lab(), None).await.unwrap());
        assert!(!world.plane.delete_project(&caller(), lab(), None).await.unwrap(), "once");
        let refused = world.plane.delete_project(&caller(), ProjectName::default(), None).await.unwrap_err();
        assert!(refused.to_string().contains("cannot be deleted"), "{refused}");
    }
}
