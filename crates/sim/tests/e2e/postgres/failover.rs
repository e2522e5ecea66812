//! A synchronous standby takes over while work goes on: nothing that was acknowledged is lost, and the old primary, when it
//! comes back, is refused.

use std::collections::BTreeSet;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::process;
use leasehold_sim::request;
use leasehold_sim::seed::Seed;
use leasehold_sql::test_server::{PASSWORD, StopMode};

use super::own_server;
use crate::marks::Marks;

#[test]
fn a_promoted_standby_has_everything_and_the_old_primary_is_refused() -> Result<()> {
    let name = "a_promoted_standby_has_everything_and_the_old_primary_is_refused";
    let Some(primary) = own_server(name)? else { return Ok(()) };
    if !primary.can_replicate() {
        eprintln!("skipped: {name} needs pg_basebackup");
        return Ok(());
    }
    let mut seed = Seed::announced(name);
    let url = primary.make_database("leasehold")?;
    let standby = primary.standby("second", true)?;
    let both = format!("{},{}", primary.address(), standby.address());
    let url = url.replace(&primary.address(), &both) + "?target_session_attrs=read-write";
    let mut cluster = Cluster::prepare_on_postgres(&url)?;
    cluster.start_control()?;
    cluster.join(WorkerOptions { name: "near", slots: 4, machine: None })?;
    let marks = Marks::new(&cluster, &mut seed);
    let mut runs: BTreeSet<String> = marks.submit(&cluster, 20, &mut seed);

    primary.kill()?;
    standby.promote()?;
    eventually("the control plane to be ready on the new primary", || {
        match request::get(&cluster.api(), "/readyz", None) {
            Ok(answer) if answer.status == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;
    runs.extend(marks.submit(&cluster, 20, &mut seed));
    for run in &runs {
        cluster.wait_for_state(run, "succeeded")?;
    }
    marks.check_one_whole_life_of_each(&runs)?;
    let seen = cluster.data().join("database.seen");
    assert!(std::fs::read_to_string(&seen)?.contains("timeline 2"));

    // The old primary comes back, alone, and takes writes.
    primary.start_again()?;
    primary.wait_for_no_standby()?;
    standby.stop(StopMode::Fast)?;
    eventually("the control plane not to be ready on the old primary", || {
        match request::get(&cluster.api(), "/readyz", None) {
            Ok(answer) if answer.status == 503 && answer.body.contains("an old primary") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;
    cluster.stop_control()?;
    let mut serve = cluster.leasehold();
    serve.arg("serve").arg("--data").arg(cluster.data()).args(cluster.listen_flags()).env("LEASEHOLD_DATABASE", &url);
    let refused = process::run(&mut serve)?;
    refused.expect_code(1);
    assert!(refused.stderr.contains("old primary") && refused.stderr.contains("database.seen"), "{refused}");
    assert!(!refused.stderr.contains(PASSWORD), "{refused}");

    standby.start_again()?;
    primary.stop(StopMode::Fast)?;
    cluster.start_control()?;
    for run in &runs {
        assert_eq!(cluster.json(&["runs", "get", run])["state"], "succeeded");
    }
    cluster.shut_down()
}
