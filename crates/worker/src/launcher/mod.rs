//! The launcher: one small process per running attempt. It owns the user's process, its output, its deadlines and
//! its receipt, so that stopping, crashing, freezing or upgrading the agent never touches a running job and never
//! lets one run on without authority.
//!
//! Two sides live here, and they share nothing but messages and files:
//!
//! | side | entry | what it does |
//! | --- | --- | --- |
//! | launcher process | [`main`] | lock, request, barrier, exec, pump, stop, receipt. Single-threaded, no async, no network |
//! | agent, start | [`spawn`](spawn::spawn) | starts the process, hands it a [`LaunchRequest`], takes its tagged answer |
//! | agent, running | [`ControlConnection`] | a renewed deadline, a stop, the hang-up that says *ended* |
//! | agent, recovery | [`observe`](observe::observe), [`link_tombstone`](barrier::link_tombstone), [`Receipt::read`], [`stop_named`](stop_named::stop_named) | what is on disk, and what is left of a launcher that died |
//!
//! The order of one launch, each step before the next:
//!
//! 1. agent: [`AttemptDir::create`](crate::attempt_dir::AttemptDir::create), `launching` durable, `spawn`;
//! 2. launcher: descriptors close-on-exec, `setsid`, subreaper, not dumpable, `lock`;
//! 3. launcher: request, log, script, `control`, program found and executable, receipt reserved, control group made
//!    and limited;
//! 4. child: own process group, enters the control group, links its identity to `barrier`, becomes the job's user,
//!    dies with its launcher, deadline once more, exec. If the name is taken or the deadline has passed, nothing is
//!    executed;
//! 5. launcher: answers `started` or `rejected` (a receipt was written before), pumps, waits, stops what is left,
//!    writes the receipt, hangs up, exits.
//!
//! For recovery, ask in the order that [`observe`](observe::observe) asks: lock, barrier, receipt. A free lock makes
//! the other two final.
//!
//! Whatever a job leaves is found twice: in its control group, where the machine lets the worker make one
//! ([`crate::cgroup`]), and as a descendant of the launcher (a child subreaper), whatever sessions or groups it made.
//! After a launcher was killed only the first holds; without a control group
//! [`stop_named`](stop_named::stop_named) then says `MayLive` unless it can prove otherwise.
//! (Worker design, *Launcher* and *The decidable spawn barrier*.)

pub mod answer;
pub mod barrier;
mod child;
mod connections;
pub mod control;
mod delivery;
mod descendants;
pub mod environment;
mod fork;
mod log;
mod mask;
pub mod observe;
mod process;
mod program;
pub mod receipt;
mod remainder;
pub mod request;
mod schedule;
mod socket;
pub mod spawn;
pub mod stop_named;
mod supervisor;
mod usage;

use std::ffi::OsString;
use std::process::ExitCode;

use leasehold_core::time::Clock;

pub use answer::{LaunchOutcome, Rejection};
pub use barrier::{Barrier, JobIdentity};
pub use control::{ControlConnection, LauncherState};
pub use receipt::{Conclusion, Ending, Receipt};
pub use request::LaunchRequest;

/// The launcher process, from the arguments after its hidden sub-command (the attempt's directory). Call it before
/// any thread or runtime exists; it refuses to start a job otherwise.
pub fn main(arguments: impl IntoIterator<Item = OsString>, clock: &'static dyn Clock) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let (Some(directory), None) = (arguments.next(), arguments.next()) else {
        // Entered by hand: the sub-command is hidden and takes exactly what the agent gives it.
        return ExitCode::from(2);
    };
    process::run(directory.as_ref(), clock)
}
