//! End-to-end tests of Leasehold with real processes: the harness.
//!
//! A [`cluster::Cluster`] is a control plane and its workers as a user would start them: the shipped binaries, over
//! real sockets, on a directory of their own. Tests wait for facts (a line, a state, an exit), never for time, and
//! whatever a test started is gone when it ends, also when it fails.
//!
//! Never here: a shortcut into the product. The harness sees what a user sees (command line, files, processes,
//! requests), so that a test holds what the product promises, not how it keeps it.

pub mod balancer;
pub mod binaries;
pub mod chaos;
pub mod cluster;
pub mod control_groups;
pub mod database;
pub mod eventually;
pub mod executable;
pub mod impostor;
pub mod machine;
pub mod port;
pub mod process;
pub mod processes;
pub mod proxy;
pub mod replica;
pub mod replicas;
pub mod request;
pub mod seed;
pub mod service_manager;
pub mod small_disk;
pub mod story;
pub mod waiting;
pub mod wall_clock;
