//! A project: the namespace of tasks, runs and secrets, and how many of its runs may hold a place at once.
//!
//! It comes with its first run, or is made ahead of it. A deleted one leaves its row, so that the same call again is told
//! the same; its next run brings it back, without a limit. (Product, *The command line*; control design, *Placement*.)

use crate::id::ProjectName;
use crate::time::UtcMillis;

/// A project as the control plane keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Its name.
    pub name: ProjectName,
    /// How many of its runs may hold a place at once: 1 to [`crate::limits::CONCURRENCY_MAX`]; none: any number.
    pub concurrency: Option<u32>,
    /// When it came to be.
    pub created_at: UtcMillis,
    /// When a person deleted it, if one did.
    pub deleted_at: Option<UtcMillis>,
    /// The key that a person made it with, if they gave one; kept when it is deleted.
    pub made: Option<Made>,
}

/// A key that made a project, and what was asked with it: its settings may be others by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The key.
    pub key: String,
    /// The limit that was asked for.
    pub concurrency: Option<u32>,
}

/// What a person sets of a project: what an edit may say that it saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How many of its runs may hold a place at once; none: any number.
    pub concurrency: Option<u32>,
}

/// Why a project is not deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Undeletable {
    /// It is where runs go that name none.
    #[error("this is the project of everything that names none: it cannot be deleted")]
    Default,
    /// Tasks of it are there.
    #[error("tasks of it are there ({tasks})")]
    HasTasks {
        /// How many.
        tasks: u64,
    },
    /// Runs of it have not ended.
    #[error("runs of it have not ended ({open})")]
    InUse {
        /// How many.
        open: u64,
    },
}

/// The project is there already, as somebody else wanted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this project exists already, with another limit")]
pub struct Exists;

/// Why a project is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotMade {
    /// It is there, as somebody else wanted it.
    Exists(Exists),
    /// The key made it before, and another limit was asked for.
    KeyReused,
    /// The key made it before, and it was deleted since: a repeat does not bring it back.
    Gone,
}

/// A person makes a project, where `known` is what is known of its name; none if it is there as they want it, or if this very
/// request made it, whatever became of its settings since.
pub fn create(
    known: Option<&Project>,
    name: &ProjectName,
    concurrency: Option<u32>,
    key: Option<&str>,
    now: UtcMillis,
) -> Result<Option<Project>, NotMade> {
    let repeated = known.and_then(|known| known.made.as_ref()).filter(|made| key == Some(made.key.as_str()));
    let living = known.filter(|known| known.deleted_at.is_none());
    match (repeated, living) {
        (Some(made), _) if made.concurrency != concurrency => Err(NotMade::KeyReused),
        (Some(_), Some(_)) => Ok(None),
        (Some(_), None) => Err(NotMade::Gone),
        (None, Some(known)) if known.concurrency == concurrency => Ok(None),
        (None, Some(_)) => Err(NotMade::Exists(Exists)),
        (None, None) => {
            let made = key.map(|key| Made { key: key.to_owned(), concurrency });
            Ok(Some(Project { made, ..Project::new(name.clone(), concurrency, now) }))
        }
    }
}

/// The project that a submitted run brings, where `known` is what is known of its name; none if it is there.
pub fn of_run(known: Option<&Project>, name: &ProjectName, now: UtcMillis) -> Option<Project> {
    known.is_none_or(|known| known.deleted_at.is_some()).then(|| Project::new(name.clone(), None, now))
}

impl Project {
    /// A new project.
    pub const fn new(name: ProjectName, concurrency: Option<u32>, now: UtcMillis) -> Self {
        Self { name, concurrency, created_at: now, deleted_at: None, made: None }
    }

    /// What a person has set of it.
    pub const fn settings(&self) -> Settings {
        Settings { concurrency: self.concurrency }
    }

    /// The project that is here now: none of a deleted one.
    pub fn living(self) -> Option<Self> {
        self.deleted_at.is_none().then_some(self)
    }

    /// The project with this limit; none if it has it already.
    pub fn limited_to(&self, concurrency: Option<u32>) -> Option<Self> {
        (self.concurrency != concurrency).then(|| Self { concurrency, ..self.clone() })
    }

    /// The project deleted; none if it was before. `open` runs of it have not ended, `tasks` of it are there.
    pub fn deleted(&self, open: u64, tasks: u64, now: UtcMillis) -> Result<Option<Self>, Undeletable> {
        if self.name == ProjectName::default() {
            return Err(Undeletable::Default);
        }
        if self.deleted_at.is_some() {
            return Ok(None);
        }
        if tasks > 0 {
            return Err(Undeletable::HasTasks { tasks });
        }
        if open > 0 {
            return Err(Undeletable::InUse { open });
        }
        Ok(Some(Self { concurrency: None, deleted_at: Some(now), ..self.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UtcMillis = UtcMillis::new(1_800_000_000_000);

    #[test]
    fn a_project_is_deleted_once_nothing_of_it_is_open() {
        let project = Project::new("lab".parse().unwrap(), Some(3), NOW);
        let refused = project.deleted(1, 0, NOW).unwrap_err();
        assert_eq!(refused.to_string(), "runs of it have not ended (1)");
        assert_eq!(project.deleted(0, 2, NOW), Err(Undeletable::HasTasks { tasks: 2 }));
        let deleted = project.deleted(0, 0, NOW).unwrap().unwrap();
        assert_eq!((deleted.concurrency, deleted.clone().living()), (None, None));
        assert_eq!(deleted.deleted(0, 0, NOW), Ok(None), "once");
        let default = Project::new(ProjectName::default(), None, NOW);
        assert_eq!(default.deleted(0, 0, NOW), Err(Undeletable::Default));
    }

    #[test]
    fn a_project_comes_with_its_first_run_or_is_made_ahead_of_it() {
        let lab: ProjectName = "lab".parse().unwrap();
        let made = create(None, &lab, Some(3), None, NOW).unwrap().unwrap();
        assert_eq!(create(Some(&made), &lab, Some(3), None, NOW), Ok(None), "the same again");
        assert_eq!(create(Some(&made), &lab, None, None, NOW), Err(NotMade::Exists(Exists)));
        assert_eq!(of_run(Some(&made), &lab, NOW), None);
        let deleted = made.deleted(0, 0, NOW).unwrap();
        assert_eq!(of_run(deleted.as_ref(), &lab, NOW), of_run(None, &lab, NOW), "what comes back has no limit");
        assert_eq!(create(deleted.as_ref(), &lab, Some(3), None, NOW), Ok(Some(made)));
    }

    #[test]
    fn a_key_makes_a_project_once_whatever_became_of_it() {
        let lab: ProjectName = "lab".parse().unwrap();
        let again = |known: &Project, limit, key| create(Some(known), &lab, limit, Some(key), NOW);
        let made = create(None, &lab, Some(3), Some("key"), NOW).unwrap().unwrap();
        let set = made.limited_to(None).unwrap();
        assert_eq!(again(&set, Some(3), "key"), Ok(None));
        assert_eq!(again(&set, None, "key"), Err(NotMade::KeyReused), "it is so, but another was asked for");
        assert_eq!(again(&set, Some(3), "other"), Err(NotMade::Exists(Exists)));
        let deleted = made.deleted(0, 0, NOW).unwrap().unwrap();
        assert_eq!(again(&deleted, Some(3), "key"), Err(NotMade::Gone));
        let back = again(&deleted, Some(3), "other").unwrap().unwrap();
        assert_eq!(back.made.unwrap().key, "other");
    }

    #[test]
    fn the_same_limit_again_changes_nothing() {
        let project = Project::new("lab".parse().unwrap(), Some(3), NOW);
        assert_eq!(project.limited_to(Some(3)), None);
        assert_eq!(project.limited_to(None).unwrap().concurrency, None);
    }
}
