//! Limits of runs at once, with real processes: a worker gone for good under a limit of one, a limited queue before a free
//! run, and what a person does with a project.

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;

/// Writes a specification, and answers its path.
fn spec(cluster: &Cluster, name: &str, text: &str) -> Result<String> {
    let path = cluster.directory().join(format!("{name}.toml"));
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// A worker gone for good, in a project of one place: its run leaves the place with its lease, and the next one starts. With
/// `mutex` the next one waits, is told for which run, and starts once a person has said what became of it. The lease is the
/// shortest that there is.
#[test]
fn a_worker_gone_for_good_frees_its_place_unless_the_run_is_a_mutex() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let gone = cluster.join(WorkerOptions::named("gone"))?;
    cluster.join(WorkerOptions::named("near"))?;
    cluster.ask(&["project", "create", "lab", "--concurrency", "1"]);
    cluster.ask(&["project", "set", "default", "--concurrency", "1"]);
    let job = |mutex: bool| {
        format!(
            "command = {{ argv = [\"sleep\", \"600\"] }}\n[limits]\nlease = \"25s\"\nmutex = {mutex}\n\
             [placement.require]\nworker_ids = [\"gone\"]\n"
        )
    };
    let (plain, mutex) = (spec(&cluster, "plain", &job(false))?, spec(&cluster, "mutex", &job(true))?);
    let lost = cluster.submit(&["--spec", &plain]);
    let kept = cluster.submit(&["--project", "lab", "--spec", &mutex]);
    cluster.wait_for_state(&lost, "running")?;
    cluster.wait_for_state(&kept, "running")?;
    let (next, waiting) = (cluster.submit(&["--", "true"]), cluster.submit(&["--project", "lab", "--", "true"]));
    for (waits, held) in [(&next, &lost), (&waiting, &kept)] {
        let told = cluster.json(&["explain", waits]);
        assert_eq!(told["explanation"]["leading"], "limit", "{told}");
        assert_eq!(
            (&told["limits"][0]["holders"][0]["run_id"], &told["limits"][0]["limit"]),
            (&held.as_str().into(), &1.into())
        );
    }

    cluster.kill_agent(gone)?;
    cluster.wait_for_state(&lost, "lost")?;
    cluster.wait_for_state(&next, "succeeded")?;
    cluster.wait_for_state(&kept, "lost")?;
    let told = cluster.ask(&["explain", &waiting]);
    assert!(told.contains(&format!("held by run {kept} on worker gone")) && told.contains("mutex"), "{told}");
    assert_eq!(cluster.json(&["runs", "get", &waiting])["state"], "pending");
    let projects = cluster.list(&["project", "list"]);
    let lab = projects.iter().find(|project| project["name"] == "lab").cloned().unwrap_or_default();
    assert_eq!((&lab["concurrency"], &lab["occupied"]), (&1.into(), &1.into()), "{lab}");

    cluster.ask(&["runs", "resolve", &kept, "mark-failed", "--reason", "its machine is gone"]);
    cluster.wait_for_state(&waiting, "succeeded")?;
    cluster.shut_down()
}

/// A hundred runs of one task, one at a time and of high priority, wait before one that is free: it starts at once. Of the
/// task never two run.
#[test]
fn a_limited_queue_delays_no_free_run() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let go = cluster.directory().join("go");
    let count = cluster.directory().join("count");
    let script = format!(
        "echo start >>{0}; while [ ! -e {1} ]; do sleep 0.05; done; echo end >>{0}",
        count.display(),
        go.display()
    );
    let queue = format!(
        "name = \"queue\"\npriority = 90\ncommand = {{ argv = [\"sh\", \"-c\", \"{script}\"] }}\n[limits]\nconcurrency = 1\n"
    );
    let queue = spec(&cluster, "queue", &queue)?;
    let mut queued = Vec::new();
    for _ in 0..100 {
        queued.push(cluster.submit(&["--spec", &queue]));
    }
    cluster.join(WorkerOptions { name: "near", slots: 4, machine: None })?;
    cluster.wait_for_state(&queued[0], "running")?;
    let free = cluster.submit(&["--priority", "10", "--", "true"]);
    cluster.wait_for_state(&free, "succeeded")?;
    let told = cluster.json(&["explain", &queued[1]]);
    assert_eq!(told["limits"][0]["holders"][0]["run_id"], queued[0].as_str(), "{told}");
    assert!(
        told["explanation"]["nearest"].as_str().unwrap_or_default().contains("the one place of task queue"),
        "{told}"
    );

    std::fs::write(&go, b"")?;
    eventually("the queue to go on", || {
        let lines = std::fs::read_to_string(&count).unwrap_or_default();
        if lines.lines().count() >= 20 { Ok(()) } else { Err(lines) }
    })?;
    let lines = std::fs::read_to_string(&count)?;
    for (place, line) in lines.lines().enumerate() {
        assert_eq!(line, if place % 2 == 0 { "start" } else { "end" }, "one at a time: {lines}");
    }
    cluster.shut_down()
}

#[test]
fn a_project_is_made_limited_and_deleted_in_words() -> Result<()> {
    let cluster = Cluster::start()?;
    assert!(cluster.ask(&["project", "create", "lab"]).contains("any number of runs at once"));
    assert!(cluster.ask(&["project", "create", "lab"]).contains("made before"));
    let refused = cluster.cli(&["project", "create", "lab", "--concurrency", "2"])?;
    refused.expect_code(10);
    assert!(refused.stderr.contains("leasehold project set"), "{refused}");
    assert!(cluster.ask(&["project", "set", "lab", "--concurrency", "2"]).contains("at most 2 runs at once"));
    assert_eq!(cluster.ask(&["project", "list", "-o", "name"]), "default\nlab");
    let run = cluster.submit(&["--project", "lab", "--", "true"]);
    let refused = cluster.cli(&["project", "delete", "lab"])?;
    refused.expect_code(10);
    assert!(refused.stderr.contains("have not ended (1)") && refused.stderr.contains("runs list"), "{refused}");
    cluster.ask(&["runs", "cancel", &run]);
    cluster.ask(&["project", "delete", "lab"]);
    cluster.cli(&["project", "set", "lab", "--concurrency", "2"])?.expect_code(3);
    cluster.cli(&["project", "delete", "default"])?.expect_code(10);
    cluster.cli(&["project", "set", "default", "--concurrency", "0"])?.expect_code(2);
    let rows = cluster.json(&["audit", "list"]);
    let told: Vec<_> = rows.as_array().into_iter().flatten().filter(|row| row["subject"] == "project/lab").collect();
    let actions: Vec<_> = told.iter().map(|row| row["action"].as_str().unwrap_or_default()).collect();
    assert_eq!(actions, ["delete_project", "set_project", "create_project"], "newest first");

    let nameless = "command = { argv = [\"true\"] }\n[limits]\nconcurrency = 1\n";
    std::fs::write(cluster.directory().join("nameless.toml"), nameless)?;
    let refused = cluster.cli(&["run", "--spec", "nameless.toml"])?;
    refused.expect_code(2);
    assert!(refused.stderr.contains("limits.concurrency") && refused.stderr.contains("name"), "{refused}");
    cluster.shut_down()
}
