//! GPUs that a machine declares: each is one run's at a time, over a restart of the agent too, and who waits is told so.

use std::fs;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};

const DECLARED: &str = "[{ id = \"GPU-8f1c0c52\", vendor = \"nvidia\", model = \"Tesla T4\", memory_mib = 15360 }, \
                        { id = \"GPU-0a5b8c9d\", vendor = \"nvidia\", model = \"Tesla T4\", memory_mib = 15360 }]";

#[test]
fn no_two_runs_see_the_same_gpu_and_a_third_waits_for_one() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let index = cluster.enroll(WorkerOptions { name: "rig", slots: 4, machine: None })?;
    cluster.worker_variable(index, "LEASEHOLD_WORKER_GPUS", DECLARED);
    cluster.start_agent(index)?;
    let shown = cluster.json(&["worker", "get", "rig"]);
    assert_eq!(shown["capabilities"]["gpus"][0]["model"], "Tesla T4", "{shown}");

    let job = |name: &str| {
        let go = cluster.directory().join(name);
        format!("echo $CUDA_VISIBLE_DEVICES $LEASEHOLD_DEVICES; while [ ! -e {} ]; do sleep 0.05; done", go.display())
    };
    let submit = |name: &str| cluster.submit(&["--require", "gpu.vendor=nvidia", "--", "sh", "-c", &job(name)]);
    let (one, two) = (submit("one"), submit("two"));
    for run in [&one, &two] {
        cluster.wait_for_state(run, "running")?;
    }
    let third = submit("one");
    let waits = |cluster: &Cluster| {
        let explained = cluster.json(&["explain", &third]);
        let explanation = &explained["explanation"];
        assert_eq!((&explanation["outlook"], &explanation["leading"]), (&"busy".into(), &"gpu".into()), "{explained}");
        assert_eq!(explanation["workers"][0]["mismatches"][0]["have"], "0 free of 2 that fit", "{explained}");
    };
    waits(&cluster);
    let never = cluster.submit(&["--require", "gpu>=3", "--", "true"]);
    assert_eq!(cluster.json(&["explain", &never])["explanation"]["outlook"], "never");
    // Who wants none is not held up, and is told of none.
    let free = cluster.submit(&["--", "sh", "-c", "echo none${LEASEHOLD_DEVICES}"]);
    cluster.wait_for_state(&free, "succeeded")?;
    assert_eq!(cluster.log(&free), "none");

    // The next agent carries the jobs on, and with them what they have.
    cluster.kill_agent(index)?;
    cluster.start_agent(index)?;
    waits(&cluster);

    fs::write(cluster.directory().join("one"), b"")?;
    for run in [&one, &third] {
        cluster.wait_for_state(run, "succeeded")?;
    }
    assert_eq!(cluster.json(&["runs", "get", &two])["state"], "running");
    fs::write(cluster.directory().join("two"), b"")?;
    cluster.wait_for_state(&two, "succeeded")?;
    let seen = [&one, &two, &third].map(|run| cluster.log(run));
    let names = seen.clone().map(|line| line.split(' ').next().unwrap_or_default().to_owned());
    assert!(seen.iter().zip(&names).all(|(line, name)| *line == format!("{name} {name}")), "{seen:?}");
    let mut both = names[..2].to_vec();
    both.sort_unstable();
    assert_eq!((both, &names[2]), (vec!["GPU-0a5b8c9d".to_owned(), "GPU-8f1c0c52".to_owned()], &names[0]));
    cluster.shut_down()
}
