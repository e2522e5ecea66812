//! `leasehold runs resolve` and `leasehold runs retry`: a person's word on a lost run.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use leasehold_core::counter::AttemptNumber;
use leasehold_core::limits::WHY_BYTES;
use leasehold_core::resolve::Verb;
use leasehold_wire::api::resolve::{ResolveAnswer, ResolveOutcome, ResolveRun};
use leasehold_wire::api::route;
use leasehold_wire::api::run::RunDetail;

use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::failure::UsageError;

const AFTER_HELP: &str = "\
What a verb does:
  wait            changes nothing, and notes that you looked
  retry           starts the next attempt now; what the lost one did may be
                  done twice
  mark-failed     ends the run as failed, on your word
  mark-succeeded  ends the run as succeeded, on your word: when you have seen
                  that its work is done
`leasehold runs explain RUN` says what is known, what is not, and what each verb
would do to it. Whichever comes first closes the question: your word, or the
receipt that its worker may bring.

Examples:
  leasehold runs resolve 0192f wait --reason 'the machine is being repaired'
  leasehold runs resolve 0192f mark-succeeded --reason 'the report is there'
  leasehold runs retry 0192f           short for: resolve 0192f retry

Exit codes:
  0 noted, or the question is closed · 3 there is no such run
  10 there is no question: the run goes on, or has ended";

const RETRY_HELP: &str = "\
Short for `leasehold runs resolve RUN retry`, which says more. A run that
failed, timed out or was cancelled has ended, and an end never changes:
`leasehold run --again RUN` submits the same anew.

Examples:
  leasehold runs retry 0192f --reason 'the machine is gone for good'

Exit codes:
  0 its next attempt starts · 3 there is no such run
  10 it is not lost: it goes on, or has ended";

/// Says what is to become of a lost run.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Resolve {
    /// The run's id, or a unique beginning of it
    #[arg(value_parser = crate::reference::run)]
    run: String,

    /// What is to become of it
    #[arg(value_parser = verb_parser())]
    verb: Verb,

    #[command(flatten)]
    word: Word,
}

/// Starts the next attempt of a lost run.
#[derive(Debug, Args)]
#[command(after_help = RETRY_HELP)]
pub(crate) struct Retry {
    /// The run's id, or a unique beginning of it
    #[arg(value_parser = crate::reference::run)]
    run: String,

    #[command(flatten)]
    word: Word,
}

/// What goes with a word.
#[derive(Debug, Args)]
struct Word {
    /// Why, for the run's story and the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    connected: Connected,
}

fn verb_parser() -> impl clap::builder::TypedValueParser<Value = Verb> {
    PossibleValuesParser::new(Verb::ALL.iter().map(|verb| verb.as_str())).try_map(|text| text.parse::<Verb>())
}

impl Resolve {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        self.word.say(&self.run, self.verb).await
    }
}

impl Retry {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        self.word.say(&self.run, Verb::Retry).await
    }
}

impl Word {
    async fn say(self, run: &str, verb: Verb) -> anyhow::Result<Exit> {
        if self.reason.as_ref().is_some_and(|reason| reason.len() > WHY_BYTES) {
            return Err(UsageError(format!("--reason: at most {WHY_BYTES} bytes are kept")).into());
        }
        let client = self.connected.client()?;
        // The word is about the attempt that is in question now, and never about one that comes meanwhile.
        let seen: RunDetail = client.get(&route::of_run(route::RUN, run)).await?;
        let attempt = AttemptNumber::new(seen.item.attempt).ok();
        let id = seen.item.id.to_string();
        let asked = Asked::json(ResolveRun { verb, why: self.reason, attempt }.to_body());
        let answer: ResolveAnswer = client.post(&route::of_run(route::RUN_RESOLVE, &id), asked).await?;
        self.connected.output.one(&answer, &id, |out| match (answer.outcome, verb) {
            (ResolveOutcome::Noted, _) => writeln!(out, "Noted; run {id} stays lost until its question is closed"),
            (ResolveOutcome::Closed, Verb::Retry) => {
                writeln!(out, "Run {id} is tried again; follow it with `leasehold logs -f {id}`")
            }
            (ResolveOutcome::Closed, _) => writeln!(out, "Run {id} is {}, on your word", answer.run.item.state),
            (ResolveOutcome::AlreadyClosed, _) => {
                writeln!(out, "The same had been said before; run {id} is {}", answer.run.item.state)
            }
        })?;
        Ok(Exit::Done)
    }
}
