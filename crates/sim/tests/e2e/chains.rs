//! Tasks that run after others, with real processes: told which runs they follow, and refused where they cannot follow.

use anyhow::{Context as _, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;

#[test]
fn a_task_runs_after_others_and_is_told_which_runs_it_follows() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let tasks = cluster.directory().join("tasks");
    std::fs::create_dir_all(&tasks)?;
    let script = "[command]\nscript = 'echo \"after $LEASEHOLD_AFTER\"'\n";
    std::fs::write(tasks.join("load.toml"), "name = 'load'\n[command]\nargv = ['true']\n")?;
    std::fs::write(tasks.join("check.toml"), format!("name = 'check'\nafter = ['load']\n{script}"))?;
    std::fs::write(tasks.join("report.toml"), format!("name = 'report'\nafter = ['check', 'load']\n{script}"))?;
    let all = tasks.to_str().context("a path of text")?;
    assert_eq!(cluster.ask(&["task", "apply", "-f", all, "-q"]), "check\nload\nreport");

    let load = cluster.ask(&["task", "run", "load", "--detach", "-q"]);
    let report = eventually("the report", || {
        let ended: Vec<_> = cluster.list(&["runs", "list", "--task", "report", "--state", "succeeded"]);
        ended.first().and_then(|run| run["id"].as_str()).map(str::to_owned).ok_or_else(|| format!("{ended:?}"))
    })?;
    let page = cluster.json(&["runs", "get", &report]);
    let check = page["after"]["check"].as_str().context("the run that it follows")?;
    assert_eq!(page["after"]["load"].as_str(), Some(load.as_str()));
    assert_eq!(cluster.log(&report).trim_end(), format!("after check={check} load={load}"));
    assert_eq!(cluster.log(check).trim_end(), format!("after load={load}"));
    assert_eq!(cluster.list(&["runs", "list", "--task", "report"]).len(), 1, "once");

    let alone = cluster.cli(&["run", "--spec", tasks.join("check.toml").to_str().context("a path of text")?])?;
    alone.expect_code(2);
    ensure!(alone.stderr.contains("after") && alone.stderr.contains("task apply"), "{alone}");
    std::fs::write(tasks.join("load.toml"), "name = 'load'\nafter = ['report']\n[command]\nargv = ['true']\n")?;
    for planned in [&["--dry-run"][..], &[]] {
        let circle = cluster.cli(&[&["task", "apply", "-f", all], planned].concat())?;
        circle.expect_code(2);
        ensure!(circle.stderr.contains("check after load after report after check"), "{circle}");
    }
    let followed = cluster.cli(&["task", "delete", "load"])?;
    followed.expect_code(10);
    ensure!(followed.stderr.contains("check, report run after task load"), "{followed}");
    cluster.shut_down()
}
