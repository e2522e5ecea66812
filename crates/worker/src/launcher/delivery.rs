//! The receipt reaches the disk, or the launcher stays: without one, the end of a job that ran would be unknown.
//!
//! Its space was reserved, so a full disk does not stop it. Should the disk fail altogether, the launcher answers
//! over `control`, tries again, and goes when it succeeded or when the attempt's directory was removed (then the
//! agent has settled what it heard). (Worker design, *Launcher*.)

use std::os::fd::OwnedFd;

use leasehold_core::time::Millis;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::fstat;

use super::connections::Connections;
use super::control::LauncherState;
use super::process::ReservedReceipt;
use super::receipt::Receipt;
use super::socket;
use crate::attempt_dir::{AttemptDir, CONTROL};
use crate::fault::steps::file;

/// Between two tries at a receipt that cannot be written.
const RETRY: Millis = Millis::from_secs(5);

pub(super) fn deliver(
    dir: &AttemptDir,
    reserved: &ReservedReceipt,
    receipt: &Receipt,
    listener: &OwnedFd,
    mut connections: Connections,
) {
    let bytes = receipt.to_bytes();
    let unwritten = LauncherState::Unwritten(Box::new(receipt.clone())).to_bytes();
    let mut told = false;
    while reserved.commit(dir.dir(), &bytes).is_err() {
        if fstat(dir.dir()).is_ok_and(|stat| stat.st_nlink == 0) {
            return;
        }
        if !std::mem::replace(&mut told, true) {
            connections.tell_all(&unwritten);
        }
        let mut indices = Vec::new();
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        for (index, connection) in connections.iter() {
            indices.push(index);
            fds.push(PollFd::new(connection, PollFlags::IN));
        }
        let _ = poll(&mut fds, Some(&socket::timespec(RETRY)));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (index, _) in indices.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            // Nothing can be stopped or extended any more; whatever is said is answered with the receipt.
            if let super::connections::Received::Message(_) = connections.receive(index) {
                connections.tell(index, &unwritten);
            }
        }
        if ready[0] {
            connections.accept(listener, &unwritten);
        }
        connections.forget_closed();
    }
    connections.tell_all(&LauncherState::Ended.to_bytes());
    // Unlinked while the lock is still held: nobody else's socket can be meant.
    let _ = dir.dir().remove::<file::Control>(CONTROL);
}
