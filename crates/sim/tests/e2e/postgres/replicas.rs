//! Three replicas behind the load balancer of `deploy/haproxy` are one control plane, and each can go at any moment.

use anyhow::Result;
use leasehold_sim::balancer::{self, Balancer, Ports};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::machine::{Machine, is_root_or_skip};
use leasehold_sim::replica::Replica;
use leasehold_sim::seed::Seed;

use super::own_server;
use crate::marks::Marks;

#[test]
fn three_replicas_behind_a_balancer_are_one_control_plane() -> Result<()> {
    let name = "three_replicas_behind_a_balancer_are_one_control_plane";
    if !is_root_or_skip(name) || !balancer::is_there_or_skip(name) {
        return Ok(());
    }
    let Some(server) = own_server(name)? else { return Ok(()) };
    let mut seed = Seed::announced(name);
    // An address of this host that is not loopback: there the API speaks TLS, as it will in production.
    let wire = Machine::create(41)?;
    let ports = Ports::take()?;
    let advertised = format!("127.0.0.1:{}", ports.ingress.number());
    let advertise = ["--advertise", advertised.as_str()];
    // The control plane that is asked on its admin socket; workers never come to it.
    let mut cluster = Cluster::prepare_on_postgres(&server.make_database("leasehold")?)?;
    cluster.control_flags(&advertise);
    cluster.start_control()?;
    let token = cluster.first_token()?;
    let replica = |name| Replica::prepare(&cluster, name, wire.host_address(), &advertise);
    let mut replicas = [replica("first")?, replica("second")?, replica("third")?];
    for replica in &mut replicas {
        replica.start(&cluster)?;
        assert!(!replica.written().contains("admin token"), "one of them shows it: {}", replica.written());
    }
    let mut balancer = Balancer::start(ports, &replicas, &cluster.data().join("ca.pem"))?;
    balancer.wait_until_up()?;
    for name in ["near", "far"] {
        cluster.join(WorkerOptions { name, slots: 4, machine: None })?;
    }
    // A remote command line comes in by the balancer, too, and checks whom it talks to.
    let mut remote = cluster.leasehold();
    remote.env("LEASEHOLD_ADDR", format!("https://{}", balancer.api()));
    remote.env("LEASEHOLD_TOKEN", &token).env("LEASEHOLD_CACERT", cluster.data().join("ca.pem"));
    let listed = leasehold_sim::process::run(remote.args(["worker", "list", "-o", "name"]))?;
    assert_eq!(listed.expect_code(0).answer().lines().count(), 2, "{listed}");

    let marks = Marks::new(&cluster, &mut seed);
    let mut runs = std::collections::BTreeSet::new();
    for round in 0..6 {
        runs.extend(marks.submit(&cluster, 10, &mut seed));
        let chosen = &mut replicas[round % 3];
        chosen.kill()?;
        runs.extend(marks.submit(&cluster, 10, &mut seed));
        chosen.start(&cluster)?;
    }
    for run in &runs {
        cluster.wait_for_state(run, "succeeded")?;
    }
    marks.check_one_whole_life_of_each(&runs)?;
    for replica in &mut replicas {
        replica.stop()?;
    }
    // The workers wait for a replica; they are not what this is about.
    for worker in cluster.lend_workers() {
        drop(worker);
    }
    drop(balancer);
    cluster.shut_down()
}
