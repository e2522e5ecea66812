//! A database on PostgreSQL: what its server promises, which history it stands in, and its schema.

use leasehold_core::clock_step::Step;
use leasehold_core::database::{History, trust};
use leasehold_core::time::{Millis, UtcMillis};
use leasehold_wire::api::time::Time;

use super::Finding;
use crate::compose::{ClockSteps, Contents, PostgresInspection};
use crate::data_directory::DataError;

/// The server and the schema, and whether this replica has `seen` a newer history of it.
pub(crate) fn postgres(found: &PostgresInspection, seen: Result<Option<History>, DataError>) -> Vec<Finding> {
    let database = match &found.refused {
        None => Finding::ok("database", format!("PostgreSQL {}", found.version)),
        Some(error) => Finding::problem(
            "database",
            format!("PostgreSQL {}: {error}", found.version),
            "the control plane refuses to work on it as it is",
        ),
    };
    vec![
        database,
        failover(found.standbys.as_deref()),
        timeline(found.history, seen),
        clock(found.clock),
        schema(found),
    ]
}

fn failover(standbys: Option<&str>) -> Finding {
    match standbys {
        Some(standbys) => Finding::ok("failover", format!("each commit waits for a standby ({standbys})")),
        None => Finding::warning(
            "failover",
            "no commit waits for a standby: a failover may lose what was acknowledged",
            "with one server alone that is as good as its disk; before you promote a standby, make it synchronous \
             (synchronous_standby_names; docs/operating-postgresql.md)",
        ),
    }
}

fn timeline(found: Option<History>, seen: Result<Option<History>, DataError>) -> Finding {
    let seen = match seen {
        Ok(seen) => seen,
        Err(error) => {
            return Finding::problem(
                "timeline",
                error.to_string(),
                "look at the file, and at which server is the primary",
            );
        }
    };
    let Some(found) = found else { return Finding::skipped("timeline", "a standby is asked for none") };
    match trust(seen, found) {
        Ok(_) => Finding::ok("timeline", format!("{} of cluster {}", found.timeline, found.cluster)),
        Err(distrust) => Finding::problem(
            "timeline",
            distrust.to_string(),
            "point the control plane at the current primary; docs/operating-postgresql.md says what to do with an old one",
        ),
    }
}

fn clock(steps: Option<ClockSteps>) -> Finding {
    let Some(ClockSteps { lately, last }) = steps else {
        return Finding::skipped("clock", "whether it stepped stands in a schema that this program cannot read");
    };
    let whole_seconds = |by: Millis| Millis::from_secs(by.get().saturating_add(500) / 1000);
    let last = match last {
        None => return Finding::ok("clock", "no replica saw it step within the last day"),
        Some(Step::Forward(by)) => format!("forward by {}", whole_seconds(by)),
        Some(Step::Back(by)) => format!("back by {}", whole_seconds(by)),
    };
    Finding::warning(
        "clock",
        format!("the database's clock stepped {lately} times within the last day, last {last}; no lease ended by it"),
        "set the database server's clock right, and have it slewed, not stepped (docs/operating-postgresql.md, Times)",
    )
}

/// The clock that judges leases and schedules: the database's.
pub(crate) fn database_clock(found: &Contents) -> Finding {
    Finding::ok("lease_clock", format!("the database's: {}", Time(UtcMillis::new(found.lease_clock.get()))))
}

fn schema(found: &PostgresInspection) -> Finding {
    match &found.schema {
        Ok((applied, known)) if applied == known => Finding::ok("schema", format!("version {applied}")),
        Ok((applied, known)) => Finding::warning(
            "schema",
            format!("version {applied}, this program has {known}"),
            "the next start of a control plane migrates it, or `leasehold serve --migrate-only` as its owner",
        ),
        Err(error) if error.is_of_rights() => Finding::problem(
            "schema",
            error.to_string(),
            "have the owner of the schema grant it, then start the control planes again",
        ),
        Err(error) => Finding::problem("schema", error.to_string(), "use the leasehold that this database is of"),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::database::{ClusterId, Timeline};

    use super::super::Status;
    use super::*;

    #[test]
    fn an_old_primary_and_a_missing_standby_are_told_with_what_to_do() {
        let history = |timeline| History { cluster: ClusterId::new(7), timeline: Timeline::new(timeline) };
        let found = |standbys: Option<&str>, applied| PostgresInspection {
            version: "15.4".to_owned(),
            history: Some(history(1)),
            refused: None,
            standbys: standbys.map(str::to_owned),
            schema: Ok((applied, 1)),
            contents: None,
            clock: Some(ClockSteps {
                lately: u64::from(applied == 0),
                last: Step::of(if applied == 0 { 10_800_059 } else { 0 }),
            }),
        };
        let verdicts = |found: &PostgresInspection, seen| -> Vec<Status> {
            postgres(found, Ok(seen)).iter().map(|finding| finding.status).collect()
        };
        assert_eq!(verdicts(&found(Some("b"), 1), None), [Status::Ok; 5]);
        let told = [Status::Ok, Status::Warning, Status::Problem, Status::Warning, Status::Warning];
        assert_eq!(verdicts(&found(None, 0), Some(history(2))), told);
        let stepped = clock(found(None, 0).clock);
        assert!(stepped.detail.contains("1 times within the last day, last forward by 3h;"), "{}", stepped.detail);
    }
}
