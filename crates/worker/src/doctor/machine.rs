//! What is wrong with the machine and the state directory: facts in, findings out.

use leasehold_core::time::{Millis, UtcMillis};

use super::Finding;
use crate::logging::rfc3339;
use crate::status::survey::Survey;
use crate::status::{Agent, AskError};

/// Less than this is too little for the log of one job.
const DISK_PROBLEM_MIB: u64 = 64;
/// Less than this will soon be too little.
const DISK_WARNING_MIB: u64 = 1024;
/// A certificate that ends within this wants a person.
const EXPIRY_WARNING: Millis = Millis::from_secs(30 * 24 * 60 * 60);
/// An agent that heard nothing for longer is cut off.
const SILENCE: Millis = Millis::from_secs(120);

/// As whom jobs would run.
#[derive(Debug)]
pub struct Users<'a> {
    /// Whether this process is root's.
    pub root: bool,
    /// Whether jobs may run as root.
    pub allow_root: bool,
    /// The users that jobs may run as.
    pub run_as: &'a [String],
    /// Those of them that this machine does not have.
    pub missing: &'a [String],
}

/// Who jobs run as.
pub fn users(users: &Users<'_>) -> Finding {
    let what = "user";
    if !users.missing.is_empty() {
        let seen = format!("run_as names {}, whom this machine does not have", users.missing.join(", "));
        return Finding::problem(what, seen, "make the user (useradd --system NAME), or name another in worker.toml");
    }
    match (users.root, users.allow_root, users.run_as) {
        (true, false, []) => Finding::problem(
            what,
            "this is root, and so would the jobs be",
            "name the user they run as (run_as in worker.toml), or write allow_root = true there: a flag of the running \
             agent is not seen here",
        ),
        (true, true, []) => Finding::ok(what, "jobs run as root, as allow_root says"),
        (true, _, [first, ..]) => Finding::ok(what, format!("jobs run as {first} unless their task names another")),
        (false, _, _) => Finding::ok(what, "jobs run as the user of this worker"),
    }
}

/// The worker's own certificate.
pub fn certificate(name: &str, validity: Option<(UtcMillis, UtcMillis)>, now: UtcMillis) -> Finding {
    let what = "identity";
    let enroll = "enroll this machine again: `leasehold worker enroll --name NAME`, then the line it prints, with a fresh \
                  state directory";
    let Some((from, until)) = validity else {
        return Finding::problem(what, "the certificate in identity.json cannot be read", enroll);
    };
    let seen = format!("worker {name}, certificate until {}", rfc3339(until));
    if now < from {
        let seen =
            format!("the certificate of {name} begins at {}: the clock of this machine is behind", rfc3339(from));
        return Finding::problem(what, seen, "set the clock (timedatectl set-ntp true)");
    }
    if now >= until {
        return Finding::problem(what, format!("the certificate of {name} ended at {}", rfc3339(until)), enroll);
    }
    if until.since(now) < EXPIRY_WARNING {
        return Finding::warning(what, seen, enroll);
    }
    Finding::ok(what, seen)
}

/// Free space where the state directory is.
pub fn disk(free_mib: u64, free_inodes: Option<u64>, read_only: bool) -> Finding {
    let what = "disk";
    let seen = format!("{free_mib} MiB are free");
    let advice = "remove what is not needed, or move the state directory to a larger disk (enroll anew there)";
    if read_only {
        return Finding::problem(what, "it is mounted read-only", "see `dmesg` for why, repair it, mount it writable");
    }
    if let Some(inodes @ 0..=999) = free_inodes {
        return Finding::problem(what, format!("{inodes} more files fit"), advice);
    }
    match free_mib {
        0..DISK_PROBLEM_MIB => Finding::problem(what, seen, advice),
        DISK_PROBLEM_MIB..DISK_WARNING_MIB => Finding::warning(what, seen, advice),
        _ => Finding::ok(what, seen),
    }
}

/// What stands in the state directory that should not.
pub fn state(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    let status = &survey.status;
    if let Some(stopped) = &status.stopped {
        let seen = format!("this worker is {stopped}: it never registers again by itself");
        let advice = "if the other one is the right one, remove this state directory; else enroll this machine anew";
        findings.push(Finding::problem("session", seen, advice));
    }
    for (file, why) in &survey.unreadable {
        let advice = "the next start moves it to quarantine and goes on";
        findings.push(Finding::warning("inbox", format!("inbox/{file}: {why}"), advice));
    }
    if !status.quarantine.is_empty() {
        let seen = format!("{} files or directories could not be trusted and were moved away", status.quarantine.len());
        findings.push(Finding::warning(
            "quarantine",
            seen,
            "`leasehold-worker quarantine` says which, and how to let go",
        ));
    }
    if !status.orphans.is_empty() {
        let seen = format!("{} attempts have a directory and no record", status.orphans.len());
        findings.push(Finding::warning(
            "attempts",
            seen,
            "`leasehold-worker quarantine` says which, and how to let go",
        ));
    }
    if findings.is_empty() {
        let records: usize = status.inbox.values().sum();
        findings.push(Finding::ok("state", format!("{}, {records} records in the inbox", status.state_dir)));
    }
    findings
}

/// The agent of this machine.
pub fn agent(agent: Result<&Agent, &AskError>) -> Vec<Finding> {
    let what = "agent";
    let agent = match agent {
        Ok(agent) => agent,
        Err(AskError::NoAgent(_)) => {
            let advice = "start it: systemctl start leasehold-worker, or `leasehold-worker run`";
            return vec![Finding::warning(what, "none runs", advice)];
        }
        Err(error) => {
            let advice = "restart it: its jobs go on (systemctl restart leasehold-worker)";
            return vec![Finding::problem(what, error.to_string(), advice)];
        }
    };
    let seen = format!("process {}: {}", agent.pid, agent.summary);
    let mut findings = vec![match agent.silent_ms {
        Some(silent) if silent > SILENCE.get() => {
            let seen = format!("{seen}; the control plane answered last {} ago", Millis::from_secs(silent / 1000));
            Finding::warning(what, seen, "see the lines about the control plane below")
        }
        None => {
            Finding::warning(what, seen, "it never had an answer in this life: see the lines about the control plane")
        }
        Some(_) if agent.drained_here => Finding::warning(what, seen, "`leasehold-worker resume` takes work again"),
        Some(_) if agent.drained_by_operator => {
            Finding::warning(what, seen, "`leasehold worker resume NAME`, at the control plane, takes work again")
        }
        Some(_) => Finding::ok(what, seen),
    }];
    if let Some(last) = agent.faults.last() {
        let seen = format!("{} in its life, the last at {}: {}", agent.faults.len(), last.at, last.text);
        findings.push(Finding::warning("faults", seen, "`leasehold-worker status` lists them"));
    }
    findings.push(features(&agent.features));
    findings
}

/// What the agent can do to its jobs.
fn features(features: &[String]) -> Finding {
    let what = "control groups";
    let has = |name: &str| features.iter().any(|feature| feature == name);
    let limits = ["cgroup-memory", "cgroup-cpu", "cgroup-pids"];
    let missing: Vec<&str> = limits.into_iter().filter(|name| !has(name)).collect();
    if !has("cgroup-kill") {
        let advice = "run it as the shipped unit (Delegate=yes) on a machine with cgroup v2; until then the launcher walks \
                      the process tree, and runs that ask for limits wait for another worker";
        return Finding::warning(what, "none that the agent may write", advice);
    }
    if !missing.is_empty() {
        let seen = format!("whole trees are killed, but {} are missing", missing.join(", "));
        let advice = "delegate the controllers: systemd 254 and newer does with the shipped unit; else name a directory \
                      of its own (`cgroup` in worker.toml)";
        return Finding::warning(what, seen, advice);
    }
    Finding::ok(what, "delegated: kill, memory, cpu, pids")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict::{Ok as Fine, Problem, Warning};

    const DAY: i64 = 24 * 60 * 60 * 1000;

    #[test]
    fn a_certificate_is_judged_by_the_clock() {
        let at = |days: i64| UtcMillis::new(days * DAY);
        let judged = |now| certificate("nas", Some((at(10), at(100))), at(now)).verdict;
        assert_eq!([9, 10, 69, 71, 99, 100].map(judged), [Problem, Fine, Fine, Warning, Warning, Problem]);
        assert_eq!(certificate("nas", None, at(1)).verdict, Problem);
    }

    #[test]
    fn a_disk_is_judged_by_what_is_left() {
        let judged = |free| disk(free, Some(1_000_000), false).verdict;
        assert_eq!([0, 63, 64, 1023, 1024].map(judged), [Problem, Problem, Warning, Warning, Fine]);
        assert_eq!(disk(100_000, Some(999), false).verdict, Problem);
        assert_eq!(disk(100_000, None, false).verdict, Fine, "a file system that counts none");
        assert_eq!(disk(100_000, None, true).verdict, Problem);
    }

    #[test]
    fn root_needs_somebody_to_run_jobs_as() {
        let judged = |root, allow_root, run_as: &[&str], missing: &[&str]| {
            let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let (run_as, missing) = (texts(run_as), texts(missing));
            users(&Users { root, allow_root, run_as: &run_as, missing: &missing }).verdict
        };
        assert_eq!(judged(true, false, &[], &[]), Problem);
        assert_eq!(judged(true, true, &[], &[]), Fine);
        assert_eq!(judged(true, false, &["jobs"], &[]), Fine);
        assert_eq!(judged(true, true, &["jobs"], &["jobs"]), Problem);
        assert_eq!(judged(false, false, &[], &[]), Fine);
    }

    #[test]
    fn an_agent_that_cannot_be_asked_or_hears_nothing_is_told() {
        let none = AskError::NoAgent("/x".to_owned());
        assert_eq!(agent(Err(&none))[0].verdict, Warning);
        let broken = AskError::Broken(std::io::Error::from(std::io::ErrorKind::TimedOut));
        assert_eq!(agent(Err(&broken))[0].verdict, Problem);
        let names = ["cgroup-kill", "cgroup-memory", "cgroup-cpu", "cgroup-pids"];
        let whole: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(features(&whole).verdict, Fine);
        assert_eq!(features(&whole[..2]).verdict, Warning);
        assert_eq!(features(&whole[1..]).verdict, Warning);
    }
}
