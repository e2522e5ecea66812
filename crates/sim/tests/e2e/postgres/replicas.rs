//! Three replicas behind the load balancer of `deploy/haproxy` are one control plane, and each can go at any moment.

use std::collections::BTreeSet;

use anyhow::Result;
use leasehold_sim::cluster::WorkerOptions;
use leasehold_sim::process;
use leasehold_sim::replicas::Replicas;
use leasehold_sim::seed::Seed;

use crate::marks::Marks;

#[test]
fn three_replicas_behind_a_balancer_are_one_control_plane() -> Result<()> {
    let name = "three_replicas_behind_a_balancer_are_one_control_plane";
    if !Replicas::are_possible_or_skip(name) {
        return Ok(());
    }
    let mut seed = Seed::announced(name);
    let mut replicas = Replicas::start(41, &[])?;
    let token = replicas.cluster.first_token()?;
    for replica in &replicas.each {
        assert!(!replica.written().contains("admin token"), "one of them shows it: {}", replica.written());
    }
    for name in ["near", "far"] {
        replicas.cluster.join(WorkerOptions { name, slots: 4, machine: None })?;
    }
    // A remote command line comes in by the balancer, too, and checks whom it talks to.
    let mut remote = replicas.cluster.leasehold();
    remote.env("LEASEHOLD_ADDR", format!("https://{}", replicas.api()));
    remote.env("LEASEHOLD_TOKEN", &token).env("LEASEHOLD_CACERT", replicas.cluster.data().join("ca.pem"));
    let listed = process::run(remote.args(["worker", "list", "-o", "name"]))?;
    assert_eq!(listed.expect_code(0).answer().lines().count(), 2, "{listed}");

    let marks = Marks::new(&replicas.cluster, &mut seed);
    let mut runs = BTreeSet::new();
    for round in 0..6 {
        let Replicas { cluster, each, .. } = &mut replicas;
        runs.extend(marks.submit(cluster, 10, &mut seed));
        each[round % 3].kill()?;
        runs.extend(marks.submit(cluster, 10, &mut seed));
        each[round % 3].start(cluster)?;
    }
    for run in &runs {
        replicas.cluster.wait_for_state(run, "succeeded")?;
    }
    marks.check_one_whole_life_of_each(&runs)?;
    replicas.shut_down()
}
