//! `leasehold worker enroll`: allows one machine to become a worker.

use clap::Args;
use leasehold_core::id::WorkerId;
use leasehold_core::limits;
use leasehold_core::time::Millis;
use leasehold_wire::api::enrollment::{CreateEnrollment, EnrollmentAnswer};
use leasehold_wire::api::route;

use crate::client::Asked;
use crate::commands::connected::Connected;
use crate::exit::Exit;
use crate::pairs::pairs;

const AFTER_HELP: &str = "\
Examples:
  leasehold worker enroll      a name of chance, 15 minutes
  leasehold worker enroll --name nas --label site=home --ttl 1h
  ssh nas \"$(leasehold worker enroll --name nas -q)\"    the line, run over there

The line holds a token and is shown once. -q prints it alone; -o name, which
prints names, is refused.

Exit codes:
  0 done · 4 not allowed: enrolling needs an admin token";

/// Allows one machine to become a worker.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Enroll {
    /// The worker's name [default: one of chance]
    #[arg(long, value_name = "NAME")]
    name: Option<WorkerId>,

    /// A label that the worker gets; it weighs more than what the machine says of itself; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,

    /// How long the line works; at most 7d
    #[arg(long, value_name = "DURATION", default_value_t = limits::ENROLLMENT_TTL)]
    ttl: Millis,

    #[command(flatten)]
    connected: Connected,
}

impl Enroll {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        self.connected.output.check_shows("the line")?;
        let labels = pairs("--label", "KEY=VALUE, such as site=office", &self.label)?;
        let client = self.connected.client()?;
        let asked = Asked::json(CreateEnrollment { worker: self.name, labels, ttl: self.ttl }.to_body());
        let answer: EnrollmentAnswer = client.post(route::ENROLLMENTS, asked).await?;
        let line = answer.join_line();
        let output = &self.connected.output;
        if let Some(status) = answer.replaces {
            output.note(&format!(
                "warning: worker {0} exists and is {1}. The machine that uses this line takes its place, and the one that \
                 is {0} now is fenced; for another machine choose another name",
                answer.worker,
                status.as_str()
            ));
        }
        output.one(&answer, line.reveal(), |out| {
            output.note(&format!(
                "Paste this on the new machine; it works once, until {}. Then start `leasehold-worker run` there.",
                self.connected.times.show(answer.expires_at.0)
            ));
            writeln!(out, "{}", line.reveal())
        })?;
        Ok(Exit::Done)
    }
}
