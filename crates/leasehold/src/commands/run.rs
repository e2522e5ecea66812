//! `leasehold run`: submits a run, and follows it, waits for it, or leaves it.

use clap::Args;
use hyper::header::HeaderName;
use leasehold_core::id::ProjectName;
use leasehold_core::time::Entropy as _;
use leasehold_wire::api::route;
use leasehold_wire::api::run::RunDetail;
use leasehold_wire::api::submit::SubmitRun;

use super::connected::Connected;
use super::following::Following;
use crate::client::{Asked, Client};
use crate::exit::Exit;
use crate::output::OutputArgs;
use crate::pairs::pairs;
use crate::run_request::RunRequest;
use crate::system::SystemEntropy;
use crate::waiting::Reconnect;

const AFTER_HELP: &str = "\
Examples:
  leasehold run -- make test                  follow its output to the end
  leasehold run --require 'runtime.python>=3.11' --require 'memory>=2GiB' \\
    -- python3 train.py
  leasehold run --spec job.toml --timeout 1h  flags weigh more than the file
  leasehold run --detach -q -- ./backup.sh    print only the run's id
  leasehold run --wait -- ./deploy.sh         wait for its end without output
  leasehold run --again 0192f                 the same as that run, anew

Exit codes:
  0 it succeeded · 5 it failed · 6 cancelled · 7 timed out · 8 lost or unknown
  9 not ended at --wait-timeout · 130 interrupted: the run goes on
  with --reflect-exit-status the command's own code, 128+n for a signal";

/// Submits a run.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Run {
    #[command(flatten)]
    following: Following,

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
        self.following.check(&self.connected.output)?;
        let submit = self.submission(self.earlier().await?)?;
        let client = self.connected.client()?;
        let run = submit_run(&client, route::RUNS, submit.to_body(), &self.connected.output).await?;
        self.following.watch(&self.connected, &client, &run).await
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
        let params = pairs("--param", "NAME=VALUE", &self.param)?;
        let (project, task) = earlier.map_or((None, None), |run| (Some(run.item.project), run.item.task));
        Ok(SubmitRun { project: self.project.clone().or(project).unwrap_or_default(), task, revision, params })
    }
}

/// Submits a run, again and under the same key where an answer was lost: it is submitted once.
pub(crate) async fn submit_run(
    client: &Client,
    path: &str,
    body: Vec<u8>,
    output: &OutputArgs,
) -> anyhow::Result<RunDetail> {
    let mut key = [0; 16];
    SystemEntropy.fill(&mut key);
    let key = data_encoding::HEXLOWER.encode(&key);
    let mut reconnect = Reconnect::default();
    loop {
        let asked = Asked::json(body.clone()).with(HeaderName::from_static(route::IDEMPOTENCY_KEY), key.clone());
        match client.post(path, asked).await {
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
    use crate::output::Format;
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

        let error = submit_run(&client, route::RUNS, submit.to_body(), &output).await.unwrap_err();
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
