//! `leasehold task token`: a new token of a task's webhook.

use clap::Args;
use leasehold_core::id::TriggerName;
use leasehold_core::trigger::Kind;
use leasehold_wire::api::route;
use leasehold_wire::api::webhook::WebhookTokenAnswer;

use super::OneTask;
use crate::client::Asked;
use crate::commands::schedule;
use crate::exit::Exit;
use crate::target::Target;

const AFTER_HELP: &str = "\
Examples:
  leasehold task token nightly-report                its path, token and a call
  TOKEN=$(leasehold task token nightly-report -q)    only the token
  URL=https://HOST:7440/api/v1/hooks/default/nightly-report/webhook
  curl -X POST --cacert ca.pem -H \"Authorization: Bearer $TOKEN\" $URL
  curl -X POST --cacert ca.pem -H \"Authorization: Bearer $TOKEN\" \\
    -H 'Idempotency-Key: b17' $URL
  curl --cacert ca.pem -H \"Authorization: Bearer $TOKEN\" \\
    --json '{\"params\":{\"DAY\":\"today\"}}' $URL

The task's file says `webhook = true` in a [[trigger]]. A webhook has one token:
another replaces it, and the one before stops at once. The token opens this
webhook and nothing else, and goes with it. -q prints it alone; -o name, which
prints names, is refused.

Exit codes:
  0 done · 2 several webhooks: say which · 3 there is no such task or webhook
  4 not allowed: this needs an operator's token";

/// Makes the token of a task's webhook, or another in its place.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Token {
    /// The webhook's name; may be left out where the task has one
    #[arg(long, value_name = "NAME")]
    trigger: Option<TriggerName>,

    #[command(flatten)]
    of: OneTask,
}

impl Token {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let output = &self.of.connected.output;
        output.check_shows("the token")?;
        let client = self.of.connected.client()?;
        let (project, task) = (self.of.project.name(), &self.of.task);
        let trigger = schedule::named(&client, &project, task, self.trigger, Some(Kind::Webhook)).await?;
        let path = route::of_trigger(route::TRIGGER_TOKEN, &project, task.as_str(), trigger.as_str());
        let answer: WebhookTokenAnswer = client.post(&path, Asked::default()).await?;
        let token = answer.token.reveal();
        output.one(&answer, token, |out| {
            output.note("This token is shown once. One that the webhook had stopped working when it was made.");
            if matches!(client.target(), Target::Socket(_)) {
                output.note(
                    "The call is for this machine. From others: the same path at the API's address, with ca.pem.",
                );
            }
            writeln!(out, "Path:  {}", answer.path)?;
            writeln!(out, "Token: {token}")?;
            let way = client.target().curl(&answer.path);
            writeln!(out, "Call:  curl -X POST -H 'Authorization: Bearer {token}' {way}")
        })?;
        Ok(Exit::Done)
    }
}
