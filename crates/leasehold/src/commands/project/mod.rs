//! `leasehold project`: one file per verb.

mod create;
mod delete;
mod list;
mod set;

use clap::Subcommand;
use leasehold_core::limits::CONCURRENCY_MAX;

use crate::exit::Exit;

const AFTER_HELP: &str = "\
Examples:
  leasehold project list
  leasehold project create lab --concurrency 4
  leasehold project set lab --concurrency none
  leasehold project delete lab

A project comes by itself with its first run; `default` is the one of everything
that names none.";

/// The verbs of projects.
#[derive(Debug, Subcommand)]
#[command(after_help = AFTER_HELP)]
pub(crate) enum Project {
    /// List projects: their limits, and how many of their places are held
    List(list::List),
    /// Make a project ahead of its first run
    Create(create::Create),
    /// Limit how many runs of a project may be there at once
    Set(set::Set),
    /// Delete a project of which no run is open
    Delete(delete::Delete),
}

impl Project {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.execute().await,
            Self::Create(create) => create.execute().await,
            Self::Set(set) => set.execute().await,
            Self::Delete(delete) => delete.execute().await,
        }
    }
}

/// A limit of runs at once, as a person writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Concurrency(Option<u32>);

fn concurrency(text: &str) -> Result<Concurrency, String> {
    if text == "none" {
        return Ok(Concurrency(None));
    }
    match text.parse() {
        Ok(limit) if (1..=CONCURRENCY_MAX).contains(&limit) => Ok(Concurrency(Some(limit))),
        _ => Err(format!("expected a number from 1 to {CONCURRENCY_MAX}, or none for any number")),
    }
}

/// A limit in words.
fn words(limit: Option<u32>) -> String {
    match limit {
        Some(1) => "at most 1 run at once".to_owned(),
        Some(limit) => format!("at most {limit} runs at once"),
        None => "any number of runs at once".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_none() {
        assert_eq!(concurrency("none"), Ok(Concurrency(None)));
        assert_eq!(concurrency("4"), Ok(Concurrency(Some(4))));
        for wrong in ["0", "-1", "10001", "", "all", "4.5"] {
            assert!(concurrency(wrong).is_err(), "{wrong}");
        }
    }
}
