//! Three replicas behind the shipped balancer, on a PostgreSQL server of their own: one control plane that loses parts.

use std::path::Path;

use anyhow::Result;
use leasehold_sql::test_server::TestServer;

use crate::balancer::{self, Balancer, Ports};
use crate::cluster::Cluster;
use crate::database;
use crate::machine::{Machine, is_root_or_skip};
use crate::processes;
use crate::replica::Replica;

const DATABASE: &str = "leasehold";

/// Three replicas and what stands around them. Workers come in by the balancer alone.
#[derive(Debug)]
pub struct Replicas {
    /// Its own control plane is one more replica, which no worker reaches: it is asked on its admin socket, and may be stopped.
    pub cluster: Cluster,
    /// The replicas.
    pub each: [Replica; 3],
    balancer: Balancer,
    /// Where their state is.
    pub server: TestServer,
    // An address of this host that is not loopback: there the API speaks TLS, which the balancer asks whether a replica is ready.
    _wire: Machine,
}

impl Replicas {
    /// Whether they can be started here; in CI they must be ([`is_root_or_skip`]).
    pub fn are_possible_or_skip(test: &str) -> bool {
        is_root_or_skip(test) && balancer::is_there_or_skip(test) && TestServer::is_there_or_skip(test)
    }

    /// Starts them, with more flags of `serve`. `machine` is the number of a [`Machine`].
    pub fn start(machine: u8, flags: &[&str]) -> Result<Self> {
        let server = TestServer::start()?;
        let wire = Machine::create(machine)?;
        let ports = Ports::take()?;
        let advertised = format!("127.0.0.1:{}", ports.ingress.number());
        let flags = [&["--advertise", advertised.as_str()], flags].concat();
        let mut cluster = Cluster::prepare_on_postgres(&server.make_database(DATABASE)?)?;
        cluster.control_flags(&flags);
        cluster.start_control()?;
        let replica = |name| Replica::prepare(&cluster, name, wire.host_address(), &flags);
        let mut each = [replica("first")?, replica("second")?, replica("third")?];
        for replica in &mut each {
            replica.start(&cluster)?;
        }
        let mut balancer = Balancer::start(ports, &each, &cluster.data().join("ca.pem"))?;
        balancer.wait_until_up()?;
        Ok(Self { cluster, each, balancer, server, _wire: wire })
    }

    /// `host:port` of the operator API behind the balancer.
    pub fn api(&self) -> String {
        self.balancer.api()
    }

    /// `host:port` where workers come in.
    pub fn ingress(&self) -> String {
        self.balancer.ingress()
    }

    /// The data directories of the three.
    pub fn data(&self) -> [&Path; 3] {
        self.each.each_ref().map(Replica::data)
    }

    /// Kills one as a crash would, and starts it again without waiting for it.
    pub fn kill(&mut self, which: usize) -> Result<()> {
        self.each[which].kill()?;
        self.each[which].spawn(&self.cluster)
    }

    /// Asks one to stop, and starts it again: the others have its work meanwhile.
    pub fn replace(&mut self, which: usize) -> Result<()> {
        self.each[which].stop()?;
        self.each[which].start(&self.cluster)
    }

    /// What in the database contradicts itself.
    pub fn contradictions(&self) -> Result<Vec<String>> {
        database::contradictions_in(&self.server, DATABASE)
    }

    /// The runs that were claimed more than once.
    pub fn claimed_again(&self) -> Result<Vec<Vec<Option<String>>>> {
        database::claimed_again(&self.server, DATABASE)
    }

    /// How many attempts are in each state.
    pub fn attempts_by_state(&self) -> Result<Vec<Vec<Option<String>>>> {
        database::attempts_by_state(&self.server, DATABASE)
    }

    /// Stops every agent and then every replica, each politely, and proves that nothing is left and that what is stored does
    /// not contradict itself.
    ///
    /// # Panics
    ///
    /// When one of them does not end with code 0, or the store contradicts itself.
    pub fn shut_down(self) -> Result<()> {
        let Self { mut cluster, each, server, .. } = self;
        for index in 0..cluster.workers() {
            if cluster.agent_runs(index) {
                cluster.stop_agent(index)?.expect_code(0);
            }
        }
        for mut replica in each {
            if replica.runs() {
                replica.stop()?;
            }
        }
        assert_eq!(database::contradictions_in(&server, DATABASE)?, Vec::<String>::new());
        let directory = cluster.directory().to_owned();
        cluster.shut_down()?;
        processes::wait_until_none_names(&directory)
    }
}
