//! What a job used up, asked of the kernel when all of it has ended.
//!
//! Processor time and memory are those of the children that were reaped and of those that they waited for; where the
//! job had a control group that counts memory, its peak and its kills for lack of memory are the whole job's.

use leasehold_core::attempt::{LimitsKept, Usage};
use leasehold_core::time::Millis;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::cgroup::JobGroup;

pub(super) fn usage(group: Option<&JobGroup>, limits: LimitsKept) -> Usage {
    let mut usage = Usage { limits, ..Usage::default() };
    if let Ok(children) = getrusage(UsageWho::RUSAGE_CHILDREN) {
        usage.user = millis(children.user_time());
        usage.system = millis(children.system_time());
        // The largest of them, and at least this launcher: each child was its copy before the exec.
        usage.max_rss_kib = u64::try_from(children.max_rss()).unwrap_or(0);
    }
    if let Some(peak) = group.and_then(JobGroup::peak_kib) {
        usage.max_rss_kib = peak;
    }
    usage.oom_killed = group.and_then(JobGroup::oom_kills).is_some_and(|kills| kills > 0);
    usage
}

fn millis(time: TimeVal) -> Millis {
    let (seconds, micros) = (u64::try_from(time.tv_sec()).unwrap_or(0), u64::try_from(time.tv_usec()).unwrap_or(0));
    Millis::new(seconds.saturating_mul(1000).saturating_add(micros / 1000))
}
