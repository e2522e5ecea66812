//! An offer: work handed to a worker under a run lease, with everything it needs to run it.
//!
//! The worker recomputes the revision's digest and refuses a drift. The offer never holds the token or its digest.
//! (Protocol, *Asks and offers*.)

use crate::capability::Capabilities;
use crate::chain::After;
use crate::counter::{AttemptNumber, FenceNumber, LeaseGeneration, LeaseVersion};
use crate::crypto::Digest;
use crate::device::Devices;
use crate::id::{AttemptId, OfferId, ProjectName, RunId, TaskName};
use crate::revision::Revision;
use crate::time::{Millis, UtcMillis};

/// The feature of a worker that understands what a run was made for: workers of 0.1.0 refuse an offer with a field that they
/// do not know, and run it without.
pub const RUN_FACTS: &str = "run-facts";

/// An offer as it crosses the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The worker's own id for it.
    pub offer: OfferId,
    /// The run.
    pub run: RunId,
    /// The attempt.
    pub attempt: AttemptId,
    /// Which try.
    pub number: AttemptNumber,
    /// Whose namespace.
    pub project: ProjectName,
    /// Of which task, if of one.
    pub task: Option<TaskName>,
    /// Digest of the revision below.
    pub digest: Digest,
    /// What to execute.
    pub revision: Revision,
    /// The run's fence number at this claim.
    pub fence: FenceNumber,
    /// Which claim of the attempt.
    pub lease_generation: LeaseGeneration,
    /// The lease's version.
    pub lease_version: LeaseVersion,
    /// How long the lease still ran when the offer was built.
    pub remaining: Millis,
    /// How long each renewal makes it last.
    pub lease: Millis,
    /// Why this worker: the placement's score.
    pub score: i64,
    /// The devices of the worker that the attempt has for itself.
    pub devices: Devices,
    /// When the run was submitted.
    pub created_at: UtcMillis,
    /// The successes that the run follows; only for a worker that says [`RUN_FACTS`].
    pub after: Option<After>,
    /// The nominal time that the run was admitted for; only for a worker that says [`RUN_FACTS`].
    pub scheduled_at: Option<UtcMillis>,
}

impl Offer {
    /// Whether it names as many devices as its revision wants, all of them of a machine with these capabilities. A control
    /// plane of before there were devices names none: it cannot say that nobody else has them.
    pub fn has_its_devices(&self, capabilities: &Capabilities) -> bool {
        let wanted = self.revision.placement().require().gpu.as_ref().map_or(0, |gpu| gpu.count);
        u32::try_from(self.devices.len()) == Ok(wanted) && self.devices.are_of(capabilities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::Value;
    use crate::capability::Gpu;
    use crate::capability::tests::machine;

    fn offer_of(revision: Revision, devices: Devices) -> Offer {
        let id = "01900000-0000-7000-8000-000000000000";
        Offer {
            offer: id.parse().unwrap(),
            run: id.parse().unwrap(),
            attempt: id.parse().unwrap(),
            number: AttemptNumber::FIRST,
            project: ProjectName::default(),
            task: None,
            digest: revision.digest(),
            revision,
            fence: FenceNumber::FIRST,
            lease_generation: LeaseGeneration::FIRST,
            lease_version: LeaseVersion::FIRST,
            remaining: Millis::ZERO,
            lease: Millis::ZERO,
            score: 0,
            devices,
            created_at: UtcMillis::new(0),
            after: None,
            scheduled_at: None,
        }
    }

    #[test]
    fn an_offer_names_exactly_the_devices_that_it_wants_of_this_machine() {
        let mut claimed = machine();
        claimed.gpus = ["0", "1"].map(|id| Gpu { id: id.parse().unwrap(), ..claimed.gpus[0].clone() }).to_vec();
        let rig = Capabilities::new(claimed).unwrap();
        let offer = |gpus: i64, devices: &str| {
            let gpu = Value::map([("gpu", Value::map([("count", Value::Int(gpus))]))]);
            let require = if gpus == 0 { Value::Map(std::collections::BTreeMap::new()) } else { gpu };
            let revision = Revision::from_value(&Value::map([
                ("command", Value::map([("argv", Value::texts(["true"]))])),
                ("placement", Value::map([("require", require)])),
            ]));
            offer_of(revision.unwrap(), devices.parse().unwrap()).has_its_devices(&rig)
        };
        assert!(offer(0, "") && offer(1, "1") && offer(2, "1,0"));
        assert!(!offer(0, "0") && !offer(1, "") && !offer(1, "0,1") && !offer(2, "0") && !offer(1, "2"));
    }
}
