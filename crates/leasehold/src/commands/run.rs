//! `leasehold run`: submits a run, and follows it, waits for it, or leaves it.

use std::time::Duration;

use clap::Args;
use hyper::header::HeaderName;
use leasehold_core::id::ProjectName;
use leasehold_core::run::RunState;
use leasehold_core::time::{Entropy as _, Millis};
use leasehold_wire::api::route;
use leasehold_wire::api::run::RunDetail;
use leasehold_wire::api::submit::SubmitRun;

use super::connected::Connected;
use crate::client::{Asked, Client};
use crate::exit::Exit;
use crate::failure::UsageError;
use crate::follow::{self, Wanted};
use crate::interrupt::Interrupts;
use crate::output::{Format, OutputArgs};
use crate::run_page;
use crate::run_request::RunRequest;
use crate::system::SystemEntropy;
use crate::waiting::{self, Reconnect};

const AFTER_HELP: &str = "\
Examples:
  leasehold run -- make test                              follow its output to the end
  leasehold run --require 'runtime.python>=3.11' --require 'memory>=2GiB' -- python3 train.py
  leasehold run --spec job.toml --timeout 10m             flags weigh more than the file
  leasehold run --detach -q -- ./backup.sh                print only the run's id
  leasehold run --wait --wait-timeout 1m -- ./deploy.sh   no output, at most a minute
  leasehold run --again 0192f                             what that run executed, as a new run

Exit codes:
  0 it succeeded · 5 it failed · 6 cancelled · 7 timed out · 8 lost or unknown
  9 not ended at --wait-timeout · 130 interrupted: the run goes on
  with --reflect-exit-status the command's own code, 128+n for a signal";

/// Submits a run.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
pub(crate) struct Run {
    /// Copy the run's stdout and stderr to ours until it ends (the default)
    #[arg(long, group = "how")]
    follow: bool,

    /// Wait for the end without copying output
    #[arg(long, group = "how")]
    wait: bool,

    /// Submit and leave; -q prints only the run's id
    #[arg(long, group = "how")]
    detach: bool,

    /// Stop waiting after this long, with exit code 9; the run goes on
    #[arg(long, value_name = "DURATION", conflicts_with = "detach")]
    wait_timeout: Option<Millis>,

    /// Exit with the command's own exit code, 128+n for a signal
    #[arg(long, conflicts_with = "detach")]
    reflect_exit_status: bool,

    /// Submit what an earlier run executed, as a new run; flags weigh more
    #[arg(long, value_name = "RUN", conflicts_with = "spec", value_parser = crate::reference::run)]
    again: Option<String>,

    /// The project that the run belongs to
    #[arg(long, env = "LEASEHOLD_PROJECT", value_name = "NAME")]
    project: Option<ProjectName>,

    /// What a parameter of the specification says this time; repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "spec")]
    param: Vec<String>,

    #[command(flatten)]
    request: RunRequest,

    #[command(flatten)]
    connected: Connected,
}

impl Run {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        if !self.wait && !self.detach && self.connected.output.output != Format::Table {
            let text = "-o needs --wait or --detach: otherwise stdout carries the command's own output";
            return Err(UsageError(text.to_owned()).into());
        }
        let submit = self.submission(self.earlier().await?)?;
        let client = self.connected.client()?;
        let output = &self.connected.output;
        let run = submit_run(&client, &submit, output).await?;
        let id = run.item.id.to_string();
        if self.detach {
            output.one(&run, &id, |out| {
                writeln!(out, "{id}")?;
                output.note(&format!("follow it with `leasehold logs -f {id}`"));
                Ok(())
            })?;
            return Ok(Exit::Done);
        }
        // Listening before the first word about the run: whoever reads that word may interrupt us.
        let mut interrupts = Interrupts::listen()?;
        output.note(&format!("run {id}"));
        let ended = tokio::select! {
            ended = self.until_settled(&client, &id) => ended.inspect_err(|_| no_longer_followed(output, &id))?,
            () = interrupts.next() => {
                left(output, &id);
                return Ok(Exit::Interrupted);
            }
            () = sleep(self.wait_timeout) => return self.gave_up(&client, &id).await,
        };
        self.tell(&ended)
    }

    /// The run that is asked for again; mistakes in flags are told whether or not a control plane is there.
    async fn earlier(&self) -> anyhow::Result<Option<RunDetail>> {
        match &self.again {
            Some(run) => Ok(Some(self.connected.client()?.get(&route::of_run(route::RUN, run)).await?)),
            None => Ok(None),
        }
    }

    fn submission(&self, earlier: Option<RunDetail>) -> anyhow::Result<SubmitRun> {
        let revision = self.request.revision(earlier.as_ref().map(|run| &run.revision.0))?;
        let pair = |text: &String| {
            let pair = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            pair.ok_or_else(|| UsageError(format!("--param: got `{text}`, write NAME=VALUE")))
        };
        let params = self.param.iter().map(pair).collect::<Result<_, _>>()?;
        let (project, task) = earlier.map_or((None, None), |run| (Some(run.item.project), run.item.task));
        Ok(SubmitRun { project: self.project.clone().or(project).unwrap_or_default(), task, revision, params })
    }

    async fn until_settled(&self, client: &Client, id: &str) -> anyhow::Result<RunDetail> {
        let output = &self.connected.output;
        let settled = async {
            if self.wait {
                return waiting::events(client, id, output, |_| Ok(())).await;
            }
            follow::output(client, Wanted { run: id, attempt: None, follow: true }, output).await?;
            Ok(client.get(&route::of_run(route::RUN, id)).await?)
        };
        waiting::saying_why_pending(client, id, output, Box::pin(settled)).await
    }

    async fn gave_up(&self, client: &Client, id: &str) -> anyhow::Result<Exit> {
        let run: RunDetail = client.get(&route::of_run(route::RUN, id)).await?;
        if run.item.state.is_terminal() {
            return self.tell(&run);
        }
        let why = if run.item.state == RunState::Pending {
            format!("; `leasehold explain {id}` says why")
        } else {
            String::new()
        };
        self.connected.output.note(&format!("run {id} is still {} and goes on{why}", run.item.state));
        Ok(Exit::StillPending)
    }

    fn tell(&self, run: &RunDetail) -> anyhow::Result<Exit> {
        let id = run.item.id.to_string();
        if self.wait {
            self.connected.output.one(run, &id, |out| writeln!(out, "{id} {}", run.item.state))?;
        }
        Ok(ended(run, &self.connected.output, self.reflect_exit_status))
    }
}

/// Ready after `span`; never without one.
async fn sleep(span: Option<Millis>) {
    match span {
        Some(span) => tokio::time::sleep(span.to_std().max(Duration::from_millis(1))).await,
        None => std::future::pending().await,
    }
}

/// Says where a run is to be found that we could not follow to its end: that we stop is no end of the run.
fn no_longer_followed(output: &OutputArgs, id: &str) {
    output.note(&format!("run {id} does not end with this: `leasehold logs -f {id}` follows it"));
}

/// Says that a run goes on although nobody watches it any more.
pub(crate) fn left(output: &OutputArgs, id: &str) {
    output.note(&format!("run {id} goes on: `leasehold logs -f {id}` follows it, `leasehold cancel {id}` stops it"));
}

/// Says how a run ended where that is not plain, and answers the exit code.
pub(crate) fn ended(run: &RunDetail, output: &OutputArgs, reflect: bool) -> Exit {
    let item = &run.item;
    if item.state != RunState::Succeeded {
        let outcome =
            item.outcome.as_ref().map(|outcome| format!(": {}", run_page::words(outcome))).unwrap_or_default();
        let fix = if item.state == RunState::Lost { "; nobody knows yet how it ended" } else { "" };
        output.note(&format!("run {} {}{outcome}{fix}", item.id, in_words(item.state)));
    }
    let own = item.outcome.as_ref().and_then(leasehold_wire::api::run::Outcome::shell_code);
    match own {
        Some(code) if reflect => Exit::OfCommand(code),
        _ => run_page::exit_of(item.state),
    }
}

fn in_words(state: RunState) -> &'static str {
    match state {
        RunState::TimedOut => "timed out",
        RunState::Cancelled => "was cancelled",
        RunState::Lost => "is lost",
        other => other.as_str(),
    }
}

/// Submits a run, again and under the same key where an answer was lost: it is submitted once.
pub(crate) async fn submit_run(client: &Client, submit: &SubmitRun, output: &OutputArgs) -> anyhow::Result<RunDetail> {
    let mut key = [0; 16];
    SystemEntropy.fill(&mut key);
    let key = data_encoding::HEXLOWER.encode(&key);
    let mut reconnect = Reconnect::default();
    loop {
        let asked = Asked::json(submit.to_body()).with(HeaderName::from_static(route::IDEMPOTENCY_KEY), key.clone());
        match client.post(route::RUNS, asked).await {
            Ok(run) => return Ok(run),
            // Where nobody listens nothing was submitted: that is told at once.
            Err(error @ crate::client::RequestError::Unreachable { .. }) => return Err(error.into()),
            Err(error) => reconnect.after(error, output).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::revision::Revision;
    use leasehold_wire::api::problem::{Problem, ProblemCode};

    use super::*;
    use crate::scripted_server::{answer, serve};

    #[tokio::test]
    async fn a_lost_answer_is_asked_for_again_under_the_same_key() {
        let refused = serde_json::to_string(&Problem::new(ProblemCode::Forbidden, "no")).unwrap();
        // The first connection closes without an answer: whether the run was submitted is unknown.
        let script = vec![String::new(), answer("403 Forbidden", "application/problem+json", &refused)];
        let directory = tempfile::tempdir().unwrap();
        let (client, served) = serve(directory.path(), script);
        let revision = Revision::of_argv(["true"]).unwrap();
        let submit = SubmitRun { project: ProjectName::default(), task: None, revision, params: [].into() };
        let output = OutputArgs { output: Format::Table, quiet: true };

        let error = submit_run(&client, &submit, &output).await.unwrap_err();
        assert_eq!(crate::failure::exit(&error), Exit::NotAllowed);
        let requests = served.await.unwrap();
        let key = |request: &String| {
            let line = request.lines().find(|line| line.starts_with("idempotency-key: "));
            line.expect("a key").to_owned()
        };
        assert_eq!(key(&requests[0]), key(&requests[1]));
        assert!(requests.iter().all(|request| request.contains(r#""argv":["true"]"#)), "{requests:?}");
    }
}
