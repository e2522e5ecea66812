//! A root worker whose jobs run as others: the whole way, with the directories and the environment that a job expects.

use anyhow::{Context, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::machine::is_root_or_skip;

const TEST: &str = "a_job_runs_as_the_user_that_it_names_and_as_nobody_else";

#[test]
fn a_job_runs_as_the_user_that_it_names_and_as_nobody_else() -> Result<()> {
    if !is_root_or_skip(TEST) {
        return Ok(());
    }
    let mut cluster = Cluster::start()?;
    let near = cluster.enroll(WorkerOptions::named("near"))?;
    cluster.spawn_agent_with(near, "LEASEHOLD_WORKER_RUN_AS", "nobody")?;
    eventually("the worker's session", || {
        let state = cluster.session_state("near");
        if state == "active" { Ok(()) } else { Err(state) }
    })?;
    let spec = cluster.directory().join("as-nobody.toml");
    let file = spec.to_str().context("a path")?;
    let as_user = |user: &str| {
        let script = "id -un; echo $USER $HOME; pwd >where; cat where; echo kept >$LEASEHOLD_OUTPUT/file; \
                      cat $LEASEHOLD_OUTPUT/file; cat ../log ../../../session.json 2>/dev/null; echo over";
        format!("[command]\nscript = '''\n{script}\n'''\ninterpreter = [\"sh\"]\nrun_as = \"{user}\"\n")
    };
    std::fs::write(&spec, as_user("nobody"))?;
    let ended = cluster.cli(&["run", "--spec", file])?;
    ended.expect_code(0);
    let lines: Vec<_> = ended.stdout.lines().collect();
    ensure!(lines.len() == 5 && lines[0] == "nobody", "{ended}");
    ensure!(lines[1].starts_with("nobody /") && !lines[1].ends_with("/root"), "{ended}");
    ensure!(lines[2].ends_with("/work"), "{ended}");
    ensure!(lines[3..] == ["kept", "over"], "{ended}");

    // Not on the worker's list: it gives the claim back, and nothing ran.
    std::fs::write(&spec, as_user("daemon"))?;
    let run = cluster.submit(&["--spec", file]);
    eventually("the refusal to be told", || {
        let run = cluster.cli(&["explain", &run]).map_err(|error| error.to_string())?;
        if run.stdout.contains("refused") { Ok(()) } else { Err(run.to_string()) }
    })?;
    cluster.ask(&["runs", "cancel", &run]);
    cluster.shut_down()
}
