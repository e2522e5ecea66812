//! What is counted, and how it is told to Prometheus (`OpenMetrics` text).
//!
//! Counters count what the store has committed, from the start of this process; gauges are read from the store at each
//! scrape, but for what the dispatcher saw last. Labels come from closed sets only: no run, no worker and no project is ever one. (Control design, *Operating
//! it*; the table of every metric is in the guide.)

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::attempt::{AttemptState, EvidenceKind};
use leasehold_core::run::{RunState, StopIntentReason};
use leasehold_core::time::Millis;
use leasehold_store::observe::{Access, Called, Fact, LateEffect, Observer, RetryCause};
use leasehold_store::view::Statistics;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::plane::ControlPlane;

/// The content type of [`ControlPlane::metrics`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// From a sync on a quick disk to the store's patience with a busy one, in seconds.
const STORE_BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
/// From a process that ends at once to a grace of minutes, in seconds.
const STOP_BUCKETS: [f64; 12] = [0.1, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0, 1800.0];

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Seconds = Gauge<f64, AtomicU64>;

#[derive(Clone, Copy)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

type Histograms = Family<Labels<1>, Histogram, Buckets>;

/// The metrics of one process. Cheap to clone: every clone counts into the same ones.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    stopwatch: Box<dyn Fn() -> Duration + Send + Sync>,
    counted: Counted,
    read: Read,
    /// What the dispatcher saw last.
    lanes_blocked: Family<Labels<1>, Gauge>,
    /// One scrape at a time: what it read is what it says.
    scraping: Mutex<()>,
}

/// What is counted as it happens.
struct Counted {
    admitted: Counter,
    claims: Counter,
    released: Counter,
    expired: Counters<1>,
    attempts_ended: Counters<1>,
    attempts_lost: Counters<1>,
    runs_ended: Counters<1>,
    runs_lost: Counter,
    retries: Counters<1>,
    late_evidence: Counters<1>,
    cancels: Counter,
    clock_steps: Counter,
    stopping: Histograms,
    calls: Counters<2>,
    call_seconds: Histograms,
}

/// What is read at a scrape.
struct Read {
    store_up: Gauge,
    runs: Family<Labels<1>, Gauge>,
    workers: Family<Labels<1>, Gauge>,
    oldest_pending: Family<Labels<0>, Seconds>,
    heartbeat_lag: Family<Labels<0>, Seconds>,
    lease_clock: Family<Labels<0>, Seconds>,
    open_pulls: Gauge,
}

/// A family with a series for each of `labels`, so that nothing is missing before it first happens.
fn counters(name: &'static str, labels: impl IntoIterator<Item = &'static str>) -> Counters<1> {
    let family = Counters::default();
    for label in labels {
        drop(family.get_or_create(&[(name, label)]));
    }
    family
}

fn counter_of(family: &Counters<1>, name: &'static str, label: &'static str) {
    family.get_or_create(&[(name, label)]).inc();
}

fn terminal_runs() -> impl Iterator<Item = RunState> {
    RunState::ALL.iter().copied().filter(|state| state.is_terminal())
}

impl Counted {
    fn new() -> Self {
        let became = RunState::ALL.iter().filter(|state| !matches!(state, RunState::Dispatching | RunState::Running));
        let ended = AttemptState::ALL.iter().filter(|state| state.is_terminal() && **state != AttemptState::Lost);
        let stopping = Histograms::new_with_constructor(Buckets(&STOP_BUCKETS));
        for reason in StopIntentReason::ALL {
            drop(stopping.get_or_create(&[("reason", reason.as_str())]));
        }
        let call_seconds = Histograms::new_with_constructor(Buckets(&STORE_BUCKETS));
        for access in [Access::Read, Access::Write] {
            drop(call_seconds.get_or_create(&[("access", access.as_str())]));
        }
        Self {
            admitted: Counter::default(),
            claims: Counter::default(),
            released: Counter::default(),
            expired: counters("became", became.map(|state| state.as_str())),
            attempts_ended: counters("state", ended.map(|state| state.as_str())),
            attempts_lost: counters("evidence", EvidenceKind::ALL.iter().map(|kind| kind.as_str())),
            runs_ended: counters("state", terminal_runs().map(RunState::as_str)),
            runs_lost: Counter::default(),
            retries: counters("cause", RetryCause::ALL.map(RetryCause::as_str)),
            late_evidence: counters("effect", LateEffect::ALL.map(LateEffect::as_str)),
            cancels: Counter::default(),
            clock_steps: Counter::default(),
            stopping,
            calls: Counters::default(),
            call_seconds,
        }
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("runs_admitted", "Runs that were submitted", self.admitted.clone());
        registry.register("claims", "Attempts that a worker claimed", self.claims.clone());
        registry.register("claims_released", "Claims that a worker gave back unstarted", self.released.clone());
        let help = "Leases that ran out, by where their run stood then; pending: the claim never started";
        registry.register("lease_expiries", help, self.expired.clone());
        registry.register("attempts_ended", "Attempts whose end was seen, by state", self.attempts_ended.clone());
        let help = "Attempts that contact was lost with, by the first evidence";
        registry.register("attempts_lost", help, self.attempts_lost.clone());
        registry.register("runs_ended", "Runs that ended, by state", self.runs_ended.clone());
        registry.register("runs_lost", "Runs whose question was left open", self.runs_lost.clone());
        registry.register("retries", "Waits for another attempt, by cause", self.retries.clone());
        let help = "Evidence that came after the fact, by what it did";
        registry.register("late_evidence", help, self.late_evidence.clone());
        registry.register("cancels", "Wishes that a run be cancelled", self.cancels.clone());
        registry.register(
            "database_clock_steps",
            "Steps of the database's clock that this replica saw first, and moved the ends of leases by",
            self.clock_steps.clone(),
        );
        let help = "From the stored wish that a run stop to its end";
        registry.register_with_unit("stop_duration", help, Unit::Seconds, self.stopping.clone());
        registry.register("store_calls", "Calls of the store, by how they went", self.calls.clone());
        let help = "How long calls of the store took, their wait included";
        registry.register_with_unit("store_call_duration", help, Unit::Seconds, self.call_seconds.clone());
    }
}

impl Read {
    fn new() -> Self {
        Self {
            store_up: Gauge::default(),
            runs: Family::default(),
            workers: Family::default(),
            oldest_pending: Family::default(),
            heartbeat_lag: Family::default(),
            lease_clock: Family::default(),
            open_pulls: Gauge::default(),
        }
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("store_up", "Whether the store answered this scrape", self.store_up.clone());
        registry.register("runs", "Runs that have not ended, by state", self.runs.clone());
        registry.register("workers", "Workers, by what can be expected of them", self.workers.clone());
        let help = "Time since the oldest pending run was submitted";
        registry.register_with_unit("oldest_pending_age", help, Unit::Seconds, self.oldest_pending.clone());
        let help = "How far beyond its interval the live worker is that has been silent longest";
        registry.register_with_unit("heartbeat_lag", help, Unit::Seconds, self.heartbeat_lag.clone());
        let help = "The clock that judges leases, from an arbitrary origin";
        registry.register_with_unit("lease_clock", help, Unit::Seconds, self.lease_clock.clone());
        registry.register("open_pulls", "Workers that wait for work at this process", self.open_pulls.clone());
    }

    /// Takes over what the store said; without it, nothing that was true earlier is told as if it were now.
    fn set(&self, statistics: Option<&Statistics>, open_pulls: usize) {
        self.store_up.set(i64::from(statistics.is_some()));
        self.open_pulls.set(gauge(open_pulls as u64));
        for family in [&self.runs, &self.workers] {
            family.clear();
        }
        for family in [&self.oldest_pending, &self.heartbeat_lag, &self.lease_clock] {
            family.clear();
        }
        let Some(Statistics { now, runs, oldest_pending, workers, heartbeat_lag }) = statistics else { return };
        for (state, count) in runs {
            self.runs.get_or_create(&[("state", state.as_str())]).set(gauge(*count));
        }
        let workers: BTreeMap<&'static str, u64> = BTreeMap::from([
            ("online", workers.online),
            ("draining", workers.draining),
            ("offline", workers.offline),
            ("enrolled", workers.enrolled),
            ("revoked", workers.revoked),
        ]);
        for (status, count) in workers {
            self.workers.get_or_create(&[("status", status)]).set(gauge(count));
        }
        let age = oldest_pending.map_or(Millis::ZERO, |oldest| now.utc.since(oldest));
        self.oldest_pending.get_or_create(&[]).set(age.to_std().as_secs_f64());
        self.heartbeat_lag.get_or_create(&[]).set(heartbeat_lag.to_std().as_secs_f64());
        let clock = Millis::new(u64::try_from(now.lease.get()).unwrap_or(0));
        self.lease_clock.get_or_create(&[]).set(clock.to_std().as_secs_f64());
    }
}

fn gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Metrics {
    /// Lanes that a whole look for work found blocked: their limit is full, or no worker that waits matches them.
    pub(crate) fn lanes_blocked(&self, by_limit: u32, by_placement: u32) {
        for (by, lanes) in [("limit", by_limit), ("placement", by_placement)] {
            self.inner.lanes_blocked.get_or_create(&[("by", by)]).set(i64::from(lanes));
        }
    }

    /// Counts from zero. `stopwatch` tells how much time has passed since a moment that stays the same, in fractions of a
    /// millisecond; `version` is this program's.
    pub fn new(version: &'static str, stopwatch: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let mut registry = Registry::with_prefix("leasehold");
        registry.register("build", "This program", Info::new([("version", version)]));
        let (counted, read) = (Counted::new(), Read::new());
        counted.register(&mut registry);
        read.register(&mut registry);
        let lanes_blocked = Family::default();
        let help = "Lanes that the last whole look for work found blocked, by what";
        registry.register("lanes_blocked", help, lanes_blocked.clone());
        let stopwatch = Box::new(stopwatch);
        let scraping = Mutex::default();
        let metrics = Self { inner: Arc::new(Inner { registry, stopwatch, counted, read, lanes_blocked, scraping }) };
        // Nothing is missing before it first happens.
        metrics.lanes_blocked(0, 0);
        metrics
    }

    fn text(&self, statistics: Option<&Statistics>, open_pulls: usize) -> String {
        let _one = self.inner.scraping.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.read.set(statistics, open_pulls);
        let mut text = String::new();
        // A text takes whatever is written into it.
        let _ = encode(&mut text, &self.inner.registry);
        text
    }
}

impl Default for Metrics {
    /// For those who measure nothing: every call takes no time.
    fn default() -> Self {
        Self::new("", || Duration::ZERO)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Observer for Metrics {
    fn committed(&self, fact: Fact) {
        let counted = &self.inner.counted;
        match fact {
            Fact::RunAdmitted => _ = counted.admitted.inc(),
            Fact::Claimed => _ = counted.claims.inc(),
            Fact::ClaimReleased => _ = counted.released.inc(),
            Fact::LeaseExpired(became) => counter_of(&counted.expired, "became", became.as_str()),
            Fact::AttemptEnded(state) => counter_of(&counted.attempts_ended, "state", state.as_str()),
            Fact::AttemptLost(evidence) => counter_of(&counted.attempts_lost, "evidence", evidence.as_str()),
            Fact::Retried(cause) => counter_of(&counted.retries, "cause", cause.as_str()),
            Fact::RunLost => _ = counted.runs_lost.inc(),
            Fact::RunEnded(state) => counter_of(&counted.runs_ended, "state", state.as_str()),
            Fact::LateEvidence(effect) => counter_of(&counted.late_evidence, "effect", effect.as_str()),
            Fact::CancelRequested => _ = counted.cancels.inc(),
            Fact::ClockStepped => _ = counted.clock_steps.inc(),
            Fact::Stopped(reason, after) => {
                let seconds = after.to_std().as_secs_f64();
                counted.stopping.get_or_create(&[("reason", reason.as_str())]).observe(seconds);
            }
        }
    }

    fn elapsed(&self) -> Duration {
        (self.inner.stopwatch)()
    }

    fn called(&self, name: &'static str, access: Access, took: Duration, how: Called) {
        let counted = &self.inner.counted;
        counted.calls.get_or_create(&[("call", name), ("answer", how.as_str())]).inc();
        counted.call_seconds.get_or_create(&[("access", access.as_str())]).observe(took.as_secs_f64());
    }
}

impl ControlPlane {
    /// Every metric, as [`CONTENT_TYPE`]. A store that does not answer is told as `leasehold_store_up 0`; what was counted is
    /// told all the same.
    pub async fn metrics(&self) -> String {
        let statistics = self.store().statistics().await;
        if let Err(error) = &statistics {
            tracing::warn!(%error, "a scrape without the store");
        }
        self.settings().metrics.text(statistics.as_ref().ok(), self.open_pulls().len())
    }
}

#[cfg(test)]
mod tests {
    use leasehold_store::faulty::{Fault, Schedule};

    use super::*;
    use crate::fixture::{World, plain};

    fn value(text: &str, series: &str) -> Option<f64> {
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    #[tokio::test]
    async fn what_is_there_is_counted_and_a_silent_store_is_told_as_such() {
        let world = World::new().await;
        let _agent = world.agent("nas", 1).await;
        world.submit(plain()).await;
        world.clock.advance(Millis::from_secs(20));
        let text = world.plane.metrics().await;
        for (series, expected) in [
            ("leasehold_store_up", 1.0),
            ("leasehold_runs{state=\"pending\"}", 1.0),
            ("leasehold_runs{state=\"lost\"}", 0.0),
            ("leasehold_workers{status=\"online\"}", 1.0),
            ("leasehold_oldest_pending_age_seconds", 20.0),
            ("leasehold_heartbeat_lag_seconds", 5.0),
            ("leasehold_runs_lost_total", 0.0),
            ("leasehold_retries_total{cause=\"never_spawned\"}", 0.0),
        ] {
            assert_eq!(value(&text, series), Some(expected), "{series} in\n{text}");
        }
        let replica = world.replica(Schedule::cycle([Fault::Before]));
        let text = replica.metrics().await;
        assert_eq!(value(&text, "leasehold_store_up"), Some(0.0));
        assert_eq!(value(&text, "leasehold_oldest_pending_age_seconds"), None, "{text}");
        assert_eq!(value(&text, "leasehold_claims_total"), Some(0.0));
    }

    #[test]
    fn each_fact_counts_once_in_its_series() {
        let metrics = Metrics::default();
        let facts = [
            (Fact::Claimed, "leasehold_claims_total"),
            (Fact::ClockStepped, "leasehold_database_clock_steps_total"),
            (Fact::LeaseExpired(RunState::RetryWait), "leasehold_lease_expiries_total{became=\"retry_wait\"}"),
            (
                Fact::AttemptLost(EvidenceKind::LeaseExpired),
                "leasehold_attempts_lost_total{evidence=\"lease_expired\"}",
            ),
            (Fact::RunEnded(RunState::TimedOut), "leasehold_runs_ended_total{state=\"timed_out\"}"),
            (Fact::Retried(RetryCause::Person), "leasehold_retries_total{cause=\"person\"}"),
            (Fact::LateEvidence(LateEffect::Resolved), "leasehold_late_evidence_total{effect=\"resolved\"}"),
            (
                Fact::Stopped(StopIntentReason::Cancel, Millis::new(400)),
                "leasehold_stop_duration_seconds_bucket{le=\"0.5\",reason=\"cancel\"}",
            ),
        ];
        for (fact, series) in facts {
            let before = value(&metrics.text(None, 0), series);
            metrics.committed(fact);
            assert_eq!((before, value(&metrics.text(None, 0), series)), (Some(0.0), Some(1.0)), "{series}");
        }
        metrics.called("claim", Access::Write, Duration::from_micros(700), Called::Unknown);
        let text = metrics.text(None, 3);
        assert_eq!(value(&text, "leasehold_store_calls_total{call=\"claim\",answer=\"unknown\"}"), Some(1.0), "{text}");
        assert_eq!(
            value(&text, "leasehold_store_call_duration_seconds_bucket{le=\"0.001\",access=\"write\"}"),
            Some(1.0)
        );
        assert_eq!(value(&text, "leasehold_open_pulls"), Some(3.0));
    }
}
