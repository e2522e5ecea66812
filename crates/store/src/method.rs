//! Every method of the port by its name, and whether it may change something: what tests go through, so that a method that
//! comes is forgotten by none of them. Nobody decides by it.

use crate::observe::Access;

/// Every method of [`crate::port::Store`] that asks the store, in its order.
pub const METHODS: &[(&str, Access)] = &[
    ("now", Access::Read),
    ("check", Access::Write),
    ("warning", Access::Read),
    ("installation", Access::Read),
    ("create_installation", Access::Write),
    ("find_api_token", Access::Read),
    ("create_enrollment", Access::Write),
    ("find_enrollment", Access::Read),
    ("enroll", Access::Write),
    ("register_session", Access::Write),
    ("heartbeat", Access::Write),
    ("drain_session", Access::Write),
    ("offline_session", Access::Write),
    ("drain_worker", Access::Write),
    ("resume_worker", Access::Write),
    ("grant_takeover", Access::Write),
    ("delete_worker", Access::Write),
    ("create_project", Access::Write),
    ("set_project", Access::Write),
    ("delete_project", Access::Write),
    ("project", Access::Read),
    ("projects", Access::Read),
    ("plan_tasks", Access::Read),
    ("apply_tasks", Access::Write),
    ("delete_task", Access::Write),
    ("task", Access::Read),
    ("tasks", Access::Read),
    ("task_history", Access::Read),
    ("task_revision", Access::Read),
    ("pause_triggers", Access::Write),
    ("resume_triggers", Access::Write),
    ("backfill_trigger", Access::Write),
    ("triggers", Access::Read),
    ("ledger", Access::Read),
    ("make_webhook_token", Access::Write),
    ("webhook_token", Access::Read),
    ("call_webhook", Access::Write),
    ("admit_run", Access::Write),
    ("keyed_run", Access::Read),
    ("recover_asks", Access::Write),
    ("lanes", Access::Read),
    ("heads", Access::Read),
    ("claim", Access::Write),
    ("release", Access::Write),
    ("acknowledge_starting", Access::Write),
    ("acknowledge_running", Access::Write),
    ("end", Access::Write),
    ("append_log", Access::Write),
    ("read_log", Access::Read),
    ("cancel_run", Access::Write),
    ("resolve_run", Access::Write),
    ("run", Access::Read),
    ("runs_by_prefix", Access::Read),
    ("runs", Access::Read),
    ("events", Access::Read),
    ("run_facts", Access::Read),
    ("worker", Access::Read),
    ("workers", Access::Read),
    ("statistics", Access::Read),
    ("audit", Access::Read),
    ("expire_leases", Access::Write),
    ("begin_retries", Access::Write),
    ("stop_overdue", Access::Write),
    ("fire_triggers", Access::Write),
    ("prune_ledgers", Access::Write),
    ("settle_chains", Access::Write),
];

/// The names of those that may change something.
pub fn changing() -> impl Iterator<Item = &'static str> {
    METHODS.iter().filter(|(_, access)| *access == Access::Write).map(|(name, _)| *name)
}

/// Whether the method of this name may change something; one that is not there may.
pub fn access_of(method: &str) -> Access {
    METHODS.iter().find(|(name, _)| *name == method).map_or(Access::Write, |(_, access)| *access)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a method changes something is said here; that it is true, each adapter's own tests see.
    #[test]
    fn every_method_of_the_port_is_named_and_may_fail_on_purpose() {
        let port = include_str!("port.rs").split("pub trait Store").nth(1).unwrap();
        let methods: Vec<&str> =
            port.lines().filter_map(|line| line.strip_prefix("    async fn ")?.split('(').next()).collect();
        let named: Vec<&str> = METHODS.iter().map(|(name, _)| *name).collect();
        assert_eq!(named, methods);
        let faulty: String = include_str!("faulty.rs").split_whitespace().collect();
        for method in methods.into_iter().filter(|method| *method != "warning") {
            assert!(faulty.contains(&format!("self.call(\"{method}\",self.inner.{method}(")), "{method}");
        }
    }
}
