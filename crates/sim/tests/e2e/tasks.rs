//! Tasks from files, with real processes: applied whole, run with parameters, edited, exported, deleted with what runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;

fn write(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    std::fs::create_dir_all(directory)?;
    let path = directory.join(format!("{name}.toml"));
    std::fs::write(&path, text)?;
    Ok(path)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path of text")
}

#[test]
fn a_directory_of_tasks_is_what_is_there_and_a_task_runs_with_its_parameters() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let tasks = cluster.directory().join("tasks");
    let report = "name = 'report'\ndescription = 'Which day'\n[command]\nscript = 'echo \"$PARAM_DAY of $LEASEHOLD_TASK\"'\n\
                  [params]\nDAY = { description = 'which day' }\n";
    let file = write(&tasks, "report", report)?;
    write(&tasks.join("team"), "backup", "name = 'backup'\n[command]\nargv = ['true']\n")?;
    let all = text(&tasks)?;

    let plan = cluster.ask(&["task", "apply", "-f", all, "--dry-run"]);
    assert_eq!(plan, "+ backup  create\n+ report  create\n2 to create");
    assert_eq!(cluster.list(&["task", "list"]), [] as [serde_json::Value; 0], "a plan changes nothing");
    assert_eq!(cluster.ask(&["task", "apply", "-f", all, "-q"]), "backup\nreport");
    assert_eq!(cluster.ask(&["task", "apply", "-f", all]), "2 unchanged");

    let missing = cluster.cli(&["task", "run", "report"])?;
    missing.expect_code(2);
    ensure!(missing.stderr.contains("params.DAY"), "{missing}");
    let ran = cluster.cli(&["task", "run", "report", "--param", "DAY=today"])?;
    assert_eq!(ran.expect_code(0).answer(), "today of report");

    // What is exported is the same task, to the byte.
    let exported = cluster.ask(&["task", "export", "report"]) + "\n";
    std::fs::write(&file, &exported)?;
    assert_eq!(cluster.ask(&["task", "apply", "-f", text(&file)?]), "1 unchanged");
    assert_eq!(cluster.ask(&["task", "export", "report"]) + "\n", exported);

    std::fs::write(&file, report.replace("of $LEASEHOLD_TASK", "again"))?;
    let diff = cluster.cli(&["task", "diff", "-f", all, "--exit-code"])?;
    diff.expect_code(10);
    ensure!(diff.stdout.contains("+++ report (file)") && diff.stdout.contains("again"), "{diff}");
    assert_eq!(cluster.ask(&["task", "apply", "-f", all]), "~ report  update\n1 updated, 1 unchanged");
    let ran = cluster.cli(&["task", "run", "report", "--param", "DAY=now"])?;
    assert_eq!(ran.expect_code(0).answer(), "now again");
    let history = cluster.list(&["task", "history", "report"]);
    assert_eq!(history.iter().map(|one| one["number"].as_u64()).collect::<Vec<_>>(), [Some(2), Some(1)]);
    ensure!(cluster.ask(&["task", "export", "report", "--revision", "1"]).contains("of $LEASEHOLD_TASK"), "as it was");

    // A mistake anywhere keeps everything as it is, and every one is told.
    std::fs::write(&file, "name = 'report'\n[comand]\n")?;
    write(&tasks, "twice", "name = 'backup'\n[command]\nargv = ['false']\n")?;
    let refused = cluster.cli(&["task", "apply", "-f", all])?;
    refused.expect_code(2);
    ensure!(refused.stderr.contains("report.toml:2:2") && refused.stderr.contains("backup"), "{refused}");
    std::fs::remove_file(&file)?;
    std::fs::remove_file(tasks.join("twice.toml"))?;
    assert_eq!(cluster.ask(&["task", "apply", "-f", all, "--prune"]), "- report  remove\n1 removed, 1 unchanged");
    cluster.cli(&["task", "get", "report"])?.expect_code(3);
    cluster.cli(&["task", "run", "report"])?.expect_code(3);
    cluster.shut_down()
}

#[test]
fn a_task_is_deleted_with_its_runs_or_not_at_all() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions { name: "near", slots: 3, machine: None })?;
    let long = write(cluster.directory(), "long", "name = 'long'\n[command]\nargv = ['sleep', '300']\n")?;
    cluster.ask(&["task", "apply", "-f", text(&long)?]);
    let runs: BTreeSet<String> = (0..6).map(|_| cluster.ask(&["task", "run", "long", "--detach", "-q"])).collect();
    let states = || -> Vec<String> {
        let runs = cluster.list(&["runs", "list", "--task", "long"]);
        runs.iter().filter_map(|run| run["state"].as_str().map(str::to_owned)).collect()
    };
    let count = |state: &str| states().iter().filter(|other| *other == state).count();
    eventually("three to run", || if count("running") == 3 { Ok(()) } else { Err(format!("{:?}", states())) })?;
    assert_eq!(count("pending"), 3);

    // An edit is for what comes: what was submitted keeps its revision.
    std::fs::write(&long, "name = 'long'\n[command]\nargv = ['true']\n")?;
    cluster.ask(&["task", "apply", "-f", text(&long)?]);
    for run in &runs {
        assert_eq!(cluster.json(&["runs", "get", run])["revision"]["command"]["argv"][1], "300");
    }

    let other = write(cluster.directory(), "other", "name = 'other'\n[command]\nargv = ['true']\n")?;
    let prune = |last: &str| cluster.cli(&["task", "apply", "-f", text(&other)?, "--prune", last]);
    let foreseen = prune("--dry-run")?;
    let lines = "- long  remove: refused, runs of it have not ended (6)\n+ other  create\n1 to create, 1 to remove";
    assert_eq!(foreseen.expect_code(10).answer(), lines);
    prune("-q")?.expect_code(10);

    let refused = cluster.cli(&["task", "delete", "long"])?;
    refused.expect_code(10);
    ensure!(refused.stderr.contains("not ended (6)") && refused.stderr.contains("--cascade"), "{refused}");
    assert_eq!(count("running") + count("pending"), 6, "nothing happened");
    cluster.ask(&["task", "delete", "long", "--cascade"]);
    assert_eq!(count("pending"), 0, "what waited ended with it");
    for run in &runs {
        cluster.wait_for_state(run, "cancelled")?;
    }
    cluster.cli(&["task", "run", "long"])?.expect_code(3);
    assert!(cluster.ask(&["task", "delete", "long", "--cascade"]).contains("deleted before"));
    cluster.shut_down()
}
