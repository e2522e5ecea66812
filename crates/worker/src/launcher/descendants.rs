//! Who descends from a launcher, and killing all of them.
//!
//! The launcher is a child subreaper: whatever its job forks, detaches or moves to another session stays below it
//! in the process tree. A round kills every descendant that it sees, each by pidfd after its identity was compared;
//! rounds repeat until none is left, so a fork during a round is met by the next one.
//!
//! A process that forks and ends, over and over, is gone from the place where a round saw it. Each time it comes to
//! the launcher as its child, and children can be met faster than anything forks: the kernel lists them, and a number
//! that only the launcher can reap cannot be another's.
//! (Worker design, *Launcher*, *Stop*.)

use std::collections::{HashMap, HashSet};
use std::io;

use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::process_identity::{ProcessStat, signal_verified, table};

/// The live descendants of `root` in `table`; zombies are not alive, but what they left below them is found.
pub(super) fn of(root: Pid, table: &[ProcessStat]) -> Vec<ProcessStat> {
    let mut children: HashMap<i32, Vec<&ProcessStat>> = HashMap::new();
    for process in table {
        children.entry(process.parent).or_default().push(process);
    }
    let (mut found, mut seen) = (Vec::new(), HashSet::from([root]));
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for process in children.get(&parent.as_raw_nonzero().get()).into_iter().flatten() {
            if seen.insert(process.pid) {
                open.push(process.pid);
                found.push(**process);
            }
        }
    }
    found.retain(|process| !process.is_zombie());
    found
}

/// One round: SIGKILL to every live descendant of `root`. Answers those it met.
pub(super) fn kill_round(root: Pid) -> io::Result<Vec<ProcessStat>> {
    let found = of(root, &table()?);
    for process in &found {
        // One that may not be signalled (another user's, through a set-uid program) is met again, and named at last.
        let _ = signal_verified(process.pid, process.start, Signal::KILL);
    }
    Ok(found)
}

/// SIGKILL to every child of this process, which has one thread and reaps nothing meanwhile. Answers whether there was
/// one, dead or alive; an error says that this kernel does not list children.
pub(super) fn kill_children() -> io::Result<bool> {
    let us = getpid().as_raw_nonzero();
    let list = std::fs::read_to_string(format!("/proc/self/task/{us}/children"))?;
    let children = list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw));
    Ok(children.fold(false, |_, child| {
        let _ = kill_process(child, Signal::KILL);
        true
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, state: u8) -> ProcessStat {
        let pid = Pid::from_raw(pid).unwrap();
        ProcessStat { pid, state, parent, group: 0, session: 0, start: 1 }
    }

    #[test]
    fn descendants_are_found_at_any_depth_and_nobody_else() {
        let table = [
            process(1, 0, b'S'),
            process(10, 1, b'S'),
            process(11, 10, b'S'),
            process(12, 11, b'T'),
            process(13, 10, b'Z'),
            process(14, 13, b'R'),
            process(20, 1, b'S'),
        ];
        let mut found: Vec<_> =
            of(Pid::from_raw(10).unwrap(), &table).iter().map(|p| p.pid.as_raw_nonzero().get()).collect();
        found.sort_unstable();
        assert_eq!(found, [11, 12, 14]);
    }
}
