//! The contract suite on the store in memory.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_store::contract::{Harness, TestClock};
use leasehold_store::model::ModelStore;
use leasehold_store::port::Store;

struct ModelHarness {
    store: Arc<ModelStore>,
    clock: Arc<TestClock>,
}

impl ModelHarness {
    fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        Self { store: Arc::new(ModelStore::new(clock.clone())), clock }
    }
}

#[async_trait]
impl Harness for ModelHarness {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn clock(&self) -> &TestClock {
        &self.clock
    }

    async fn dump(&self) -> String {
        self.store.dump()
    }
}

leasehold_store::contract_suite!(ModelHarness::new());

/// A case that no suite runs would prove nothing: every public case of every file is named in the macro.
#[test]
fn every_case_is_in_the_suite() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/contract");
    let suite = std::fs::read_to_string(folder.join("mod.rs")).unwrap();
    let named: Vec<_> = suite.lines().map(str::trim).collect();
    let mut cases = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines() {
            let Some(case) = line.strip_prefix("pub async fn ").and_then(|rest| rest.split('(').next()) else {
                continue;
            };
            assert!(named.contains(&case), "`{case}` is in no suite");
            cases += 1;
        }
    }
    assert!(cases > 100, "only {cases} cases found: has the form of a case changed?");
}
