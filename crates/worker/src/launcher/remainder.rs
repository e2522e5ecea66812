//! What the kernel did not let go of when its job had ended: killed again, on a bounded schedule, until it is gone.
//!
//! The end itself did not wait for it: the receipt names it (`cancel_incomplete`), and the job's slot is free. The
//! launcher stays as its parent, with the lock, and rewrites the receipt when nothing is left; whoever sees the lock
//! free and the receipt unchanged knows that nobody will say so any more. (Worker design, *Launcher*, *Stop*.)

use leasehold_core::time::{Clock, Millis};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::process::{WaitOptions, getpid, wait};

use super::descendants;
use super::receipt::Receipt;
use super::socket::timespec;
use crate::attempt_dir::AttemptDir;
use crate::cgroup::JobGroup;
use crate::process_identity::open_verified;

/// Before the second try; each next wait is twice as long.
const FIRST: Millis = Millis::new(100);
/// The longest wait between two tries. What ends in between is noticed at once.
const SLOWEST: Millis = Millis::from_secs(60);
/// How long it is tried.
const SCHEDULE: Millis = Millis::from_secs(24 * 60 * 60);

/// Stays until nothing is left, and then says so; goes silently when the schedule is over or the attempt's directory
/// was removed.
pub(super) fn see_off(dir: &AttemptDir, receipt: &Receipt, group: Option<&JobGroup>, clock: &dyn Clock) {
    let until = clock.boot().plus(SCHEDULE);
    let mut pause = FIRST;
    while clock.boot() < until && fstat(dir.dir()).is_ok_and(|stat| stat.st_nlink > 0) {
        if let Some(group) = group {
            let _ = group.kill();
        }
        let left = descendants::kill_round(getpid()).unwrap_or_default();
        let populated = group.and_then(JobGroup::is_populated).unwrap_or(false);
        if is_childless() && !populated && rewritten(dir, receipt) {
            if let Some(group) = group {
                group.remove();
            }
            return;
        }
        let ends: Vec<_> =
            left.iter().filter_map(|process| open_verified(process.pid, process.start).ok().flatten()).collect();
        let mut fds: Vec<_> = ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
        let _ = poll(&mut fds, Some(&timespec(pause)));
        pause = pause.times(2).min(SLOWEST);
    }
}

/// Reaps whoever has ended; whether no child is left, dead or alive.
fn is_childless() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// The receipt again, with nothing left; a disk that refuses is asked again.
fn rewritten(dir: &AttemptDir, receipt: &Receipt) -> bool {
    let Ok(reserved) = Receipt::prepare(dir.dir()) else { return false };
    reserved.commit(dir.dir(), &receipt.with_nothing_left().to_bytes()).is_ok()
}
