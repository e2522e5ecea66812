//! The database and what it says: whole, of a known schema, its clock in step, nobody silent, no question open.

use leasehold_core::limits::{CLOCK_SKEW, WAL_WARNING};
use leasehold_core::time::{Millis, UtcMillis};
use leasehold_wire::api::time::Time;

use super::{Finding, few, size};
use crate::compose::{Contents, InspectError, Inspection, Stage};

/// A file that tells nothing.
pub(crate) fn unread(error: &InspectError) -> Finding {
    let advice = match error {
        InspectError::NotThere(_) | InspectError::Empty(_) | InspectError::Foreign(_) => {
            "name the data directory of a control plane with --data, or restore a backup"
        }
        InspectError::Unreadable { .. } => "run the doctor as the user whose data it is",
        InspectError::Broken { .. } => {
            "stop the control plane, copy the data directory as it is, and restore a backup; look at the disk"
        }
    };
    Finding::problem("database", error.to_string(), advice)
}

/// The file itself.
pub(crate) fn database(found: &Inspection) -> Vec<Finding> {
    let whole = if found.damage.is_empty() {
        Finding::ok("database", format!("{}, whole", size(found.bytes.0)))
    } else {
        let advice = "stop the control plane, copy the data directory as it is, and restore a backup; look at the disk";
        Finding::problem("database", format!("damaged: {}", few(&found.damage)), advice)
    };
    let (schema, known) = found.schema;
    let text = format!("version {schema}");
    let schema = match schema.cmp(&known) {
        std::cmp::Ordering::Equal => Finding::ok("schema", text),
        std::cmp::Ordering::Less => Finding::warning(
            "schema",
            format!("{text}, this program has {known}"),
            "the next start of the control plane migrates it: make a backup first",
        ),
        std::cmp::Ordering::Greater => {
            Finding::problem("schema", format!("{text}, this program knows up to {known}"), "use a newer leasehold")
        }
    };
    let wal = format!("{} not written back", size(found.bytes.1));
    let wal = if found.bytes.1 > WAL_WARNING {
        let advice = "something reads for very long, such as a backup that hangs: end it, or restart the control plane";
        Finding::warning("write_ahead_log", wal, advice)
    } else {
        Finding::ok("write_ahead_log", wal)
    };
    let mut findings = vec![whole, schema, wal];
    if let Some(moved) = &found.moved {
        let to = &moved.to.url;
        findings.push(if moved.stage == Stage::Finished {
            let advice =
                "name that database with --database, as the role that replicas run as, here and for `leasehold serve`";
            Finding::problem("store", format!("moved to {to} at {}: what is here is older", Time(moved.at)), advice)
        } else {
            let advice = "run `leasehold migrate-store` again with the same --data and --database: it ends the move";
            Finding::problem("store", format!("a move to {to} was begun and did not end"), advice)
        });
    }
    findings
}

/// The clock that judges leases, against the time since boot that the control plane has been up for, where it runs and that is
/// known.
pub(crate) fn lease_clock(found: &Contents, up: Option<Millis>) -> Finding {
    let lease = Millis::new(u64::try_from(found.lease_clock.get()).unwrap_or(0));
    let text = format!("{lease} since the installation was made");
    match up {
        Some(up) if lease.plus(CLOCK_SKEW) < up => Finding::problem(
            "lease_clock",
            format!("{text}, but the control plane has been up for {up}"),
            "the clock that judges leases stands or runs slow: restart the control plane, and look at the machine's clock source",
        ),
        _ => Finding::ok("lease_clock", text),
    }
}

/// The clock for people, against what it said before.
pub(crate) fn wall_clock(found: &Contents, now: UtcMillis) -> Finding {
    let made = found.installation.as_ref().map(|installation| installation.created_at);
    match found.latest_submission.into_iter().chain(made).max() {
        Some(latest) if latest > now.plus(CLOCK_SKEW) => Finding::warning(
            "wall_clock",
            format!("{}, and the latest run was submitted at {}", Time(now), Time(latest)),
            "set this machine's clock, and have it kept (NTP): leases do not depend on it, times and schedules do",
        ),
        _ => Finding::ok("wall_clock", Time(now).to_string()),
    }
}

/// Workers that have not been heard of.
pub(crate) fn workers(found: &Contents) -> Finding {
    let names: Vec<String> = found.silent_workers.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        return Finding::ok("workers", "none is silent");
    }
    Finding::warning(
        "workers",
        format!("silent for longer than their session: {}", few(&names)),
        "look at the machine: `systemctl status leasehold-worker` and its log say why; `leasehold worker get NAME` says what it held",
    )
}

/// Runs whose question is open.
pub(crate) fn runs(found: &Contents) -> Finding {
    match found.lost_runs {
        0 => Finding::ok("lost_runs", "no question is open"),
        lost => Finding::warning(
            "lost_runs",
            format!("{lost} lost, each an open question"),
            "`leasehold runs list --state lost`, then `leasehold runs get RUN` for the evidence",
        ),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::database::{ClusterId, History, Timeline};
    use leasehold_core::time::LeaseInstant;
    use leasehold_sql::sqlite::{Moved, Place};

    use super::super::Status;
    use super::*;

    fn contents() -> Contents {
        Contents {
            installation: None,
            lease_clock: LeaseInstant::new(60_000),
            latest_submission: Some(UtcMillis::new(1_000_000)),
            lost_runs: 0,
            silent_workers: Vec::new(),
            certificates: Vec::new(),
        }
    }

    #[test]
    fn a_lease_clock_that_stands_and_a_wall_clock_that_went_back_are_told() {
        let verdict = |up: u64, now: i64| {
            let up = Some(Millis::from_secs(up));
            (lease_clock(&contents(), up).status, wall_clock(&contents(), UtcMillis::new(now)).status)
        };
        assert_eq!(verdict(60, 1_000_000), (Status::Ok, Status::Ok));
        assert_eq!(verdict(600, 1_000_000), (Status::Problem, Status::Ok));
        assert_eq!(verdict(60, 0), (Status::Ok, Status::Warning));
        assert_eq!(lease_clock(&contents(), None).status, Status::Ok, "nothing to compare with");
    }

    #[test]
    fn damage_schema_and_a_long_log_are_told_with_what_to_do() {
        let found = Inspection { bytes: (4096, 0), schema: (1, 1), moved: None, damage: Vec::new(), contents: None };
        let verdicts = |found: &Inspection| database(found).iter().map(|finding| finding.status).collect::<Vec<_>>();
        assert_eq!(verdicts(&found), [Status::Ok; 3]);
        let bad = Inspection {
            damage: vec!["row 1 missing".to_owned()],
            schema: (2, 1),
            bytes: (1, WAL_WARNING + 1),
            ..found
        };
        assert_eq!(verdicts(&bad), [Status::Problem, Status::Problem, Status::Warning]);
        assert!(database(&bad).iter().all(|finding| finding.advice.is_some()));
        assert_eq!(verdicts(&Inspection { schema: (0, 1), ..bad })[1], Status::Warning);
    }

    #[test]
    fn a_file_of_a_newer_program_and_one_that_was_moved_are_told_with_what_to_do() {
        let found = Inspection { bytes: (4096, 0), schema: (7, 7), moved: None, damage: Vec::new(), contents: None };
        let told = |found: &Inspection, check: &str| {
            let findings = database(found);
            let finding = findings.iter().find(|finding| finding.check == check).unwrap();
            assert_eq!(finding.status, Status::Problem, "{finding:?}");
            format!("{} → {}", finding.detail, finding.advice.as_deref().unwrap())
        };
        let newer = Inspection { schema: (8, 7), ..found.clone() };
        assert_eq!(told(&newer, "schema"), "version 8, this program knows up to 7 → use a newer leasehold");
        let moved = |stage| Inspection { moved: Some(to_postgres(stage)), ..found.clone() };
        assert_eq!(
            told(&moved(Stage::Finished), "store"),
            "moved to postgres://db/leasehold at 2027-01-15T08:00:00Z: what is here is older → name that database with --database, \
             as the role that replicas run as, here and for `leasehold serve`"
        );
        for stage in [Stage::Copying, Stage::Committing] {
            let told = told(&moved(stage), "store");
            assert!(told.contains("begun and did not end") && told.contains("leasehold migrate-store"), "{told}");
        }
    }

    fn to_postgres(stage: Stage) -> Moved {
        let history = History { cluster: ClusterId::new(1), timeline: Timeline::new(1) };
        let url = "postgres://db/leasehold".to_owned();
        let to = Place { url, history, database: 1, schema: "public".to_owned() };
        let id = "01900000-0000-7000-8000-000000000001".parse().unwrap();
        Moved { id, to, stage, at: UtcMillis::new(1_800_000_000_000) }
    }

    #[test]
    fn a_file_that_tells_nothing_is_named_with_what_to_do() {
        let path = || "/data/leasehold.db".into();
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        for (error, words, advice) in [
            (InspectError::NotThere(path()), "there is no database", "--data"),
            (InspectError::Empty(path()), "is empty", "restore a backup"),
            (InspectError::Foreign(path()), "of another program", "--data"),
            (InspectError::Unreadable { path: path(), source: denied }, "permission denied", "as the user"),
        ] {
            let Finding { status, detail, advice: told, .. } = unread(&error);
            assert_eq!(status, Status::Problem);
            assert!(detail.contains(words) && detail.contains("/data/leasehold.db"), "{detail}");
            assert!(told.as_deref().is_some_and(|told| told.contains(advice)), "{told:?}");
        }
    }

    #[test]
    fn who_is_silent_and_what_is_lost_is_named() {
        let found = Contents { silent_workers: vec!["nas".parse().unwrap()], lost_runs: 2, ..contents() };
        assert!(workers(&found).detail.contains("nas"));
        assert_eq!((workers(&found).status, runs(&found).status), (Status::Warning, Status::Warning));
        assert_eq!((workers(&contents()).status, runs(&contents()).status), (Status::Ok, Status::Ok));
    }
}
