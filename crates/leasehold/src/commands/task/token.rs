//! `leasehold task token`: a new token of a task's webhook.

use clap::Args;
use leasehold_core::id::{TaskName, TriggerName};
use leasehold_core::trigger::Kind;
use leasehold_wire::api::page::Page;
use leasehold_wire::api::route;
use leasehold_wire::api::schedule::ScheduleItem;
use leasehold_wire::api::webhook::WebhookTokenAnswer;

use super::InProject;
use crate::client::{Asked, Client};
use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::failure::UsageError;

const AFTER_HELP: &str = "\
Examples:
  leasehold task token nightly-report                      its path and its token, shown once
  TOKEN=$(leasehold task token nightly-report -q)          only the token
  URL=https://HOST:7440/api/v1/hooks/default/nightly-report/webhook
  curl -X POST --cacert ca.pem -H \"Authorization: Bearer $TOKEN\" $URL
  curl -X POST --cacert ca.pem -H \"Authorization: Bearer $TOKEN\" -H 'Idempotency-Key: b17' $URL
  curl --cacert ca.pem -H \"Authorization: Bearer $TOKEN\" --json '{\"params\":{\"DAY\":\"today\"}}' $URL

The task's file says `webhook = true` in a [[trigger]]. A webhook has one token: another replaces
it, and the one before stops at once. The token opens this webhook and nothing else, and goes with
it.

Exit codes:
  0 done · 2 several webhooks: say which · 3 there is no such task or webhook
  4 not allowed: this needs an operator's token";

/// Makes the token of a task's webhook, or another in its place.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Token {
    /// The task's name
    task: TaskName,

    /// The webhook's name; may be left out where the task has one
    #[arg(long, value_name = "NAME")]
    trigger: Option<TriggerName>,

    #[command(flatten)]
    project: InProject,

    #[command(flatten)]
    connected: Connected,
}

impl Token {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let client = self.connected.client()?;
        let project = self.project.name();
        let trigger = match self.trigger {
            Some(trigger) => trigger,
            None => only(&client, &project, &self.task).await?,
        };
        let path = route::of_trigger(route::TRIGGER_TOKEN, &project, self.task.as_str(), trigger.as_str());
        let answer: WebhookTokenAnswer = client.post(&path, Asked::default()).await?;
        let output = &self.connected.output;
        output.one(&answer, answer.token.reveal(), |out| {
            output.note("This token is shown once. One that the webhook had stopped working when it was made.");
            writeln!(out, "Path:  {}", answer.path)?;
            writeln!(out, "Token: {}", answer.token.reveal())?;
            let url = client.target().url(&answer.path);
            writeln!(out, "Call:  curl -X POST -H \"Authorization: Bearer $TOKEN\" {url}")
        })?;
        Ok(Exit::Done)
    }
}

/// The webhooks of a task.
pub(super) async fn webhooks(client: &Client, project: &str, task: &TaskName) -> anyhow::Result<Vec<ScheduleItem>> {
    let all = route::of_project(route::SCHEDULES, project);
    let page: Page<ScheduleItem> = client.get(&format!("{all}?task={}", route::segment(task.as_str()))).await?;
    Ok(page.items.into_iter().filter(|item| item.kind == Kind::Webhook).collect())
}

/// The only webhook of a task.
async fn only(client: &Client, project: &str, task: &TaskName) -> anyhow::Result<TriggerName> {
    match &webhooks(client, project, task).await?[..] {
        [only] => Ok(only.trigger.clone()),
        // What is not there is told by the server, as everywhere.
        [] => Ok("webhook".parse()?),
        several => {
            let names: Vec<_> = several.iter().map(|item| item.trigger.as_str()).collect();
            let names = names.join(", ");
            Err(UsageError(format!("task {task} has several webhooks: say which with --trigger, of {names}")).into())
        }
    }
}
