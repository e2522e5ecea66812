//! What an observer is told of calls: every method by its name, and that it writes only where it says so. A read is carried
//! out in a transaction that cannot write.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_store::contract::TestClock;
use leasehold_store::observe::{Access, Called, Fact, Observer};

use super::super::{PostgresOptions, PostgresStore};
use crate::scene::{Scene, every_call, told_of_every_method};
use crate::test_server::TestServer;

#[derive(Default)]
struct Told(Mutex<BTreeSet<(&'static str, Access)>>);

impl Observer for Told {
    fn committed(&self, _: Fact) {}

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn called(&self, name: &'static str, access: Access, _: Duration, how: Called) {
        assert_eq!(how, Called::Answered, "{name}");
        self.0.lock().unwrap().insert((name, access));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_is_told_of_every_method() {
    let Some(server) = TestServer::shared_or_skip("what an observer is told") else { return };
    let (database, clock, told) = (server.database().unwrap(), Arc::new(TestClock::new()), Arc::new(Told::default()));
    let options = PostgresOptions::new().timed_by(clock.clone()).observed(told.clone());
    let store = PostgresStore::open(&database.url(), options).await.unwrap();
    every_call(&Scene::on(store, clock)).await;
    told_of_every_method(&told.0.lock().unwrap());
}
