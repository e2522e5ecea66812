//! Every number that bounds the product, in one place, with its unit. Both sides of a connection enforce them.
//!
//! A size is in bytes, a count is in things, a span is [`Millis`]. (Design, *Bounded everywhere*; protocol, *Limits*;
//! control design, *Placement*; worker design, *Inbox* and *Leases*.)

use crate::time::Millis;

/// Bytes of one KiB.
pub const KIB: usize = 1024;
/// Bytes of one MiB.
pub const MIB: usize = 1024 * KIB;

// Bodies of the worker protocol and of the operator API.

/// Any JSON body without a limit of its own, a registration included.
pub const JSON_BODY: usize = 16 * KIB;
/// A registration: the capabilities (at most [`CAPABILITIES_BYTES`]) and what surrounds them.
pub const REGISTRATION_BODY: usize = CAPABILITIES_BYTES + 8 * KIB;
/// A heartbeat with its renewals.
pub const HEARTBEAT_BODY: usize = 64 * KIB;
/// The answer to a heartbeat: a verdict per renewal, and directives.
pub const HEARTBEAT_ANSWER: usize = 256 * KIB;
/// One offer inside the answer to a pull.
pub const OFFER_BYTES: usize = 128 * KIB;
/// The answer to a pull: every ask granted, plus directives.
pub const PULL_ANSWER: usize = PULL_ASKS * OFFER_BYTES + 64 * KIB;
/// A body that submits a run or a revision to the operator API.
pub const REVISION_BODY: usize = 256 * KIB;
/// Framed bytes of a log in one call.
pub const LOG_CHUNK: usize = 256 * KIB;
/// The resolved secrets and input references of one attempt.
pub const MATERIALS_ANSWER: usize = 256 * KIB;
/// A header list, on either side of the ingress.
pub const HEADER_LIST: usize = 8 * KIB;

// What people say.

/// A person's words about what they do: why a run is cancelled or resolved, why a worker is drained.
pub const WHY_BYTES: usize = 512;

// Calls.

/// Renewals in one heartbeat.
pub const HEARTBEAT_RENEWALS: usize = 256;
/// Renewals in one heartbeat that name what the kernel does not let go of.
pub const HEARTBEAT_LEFT: usize = 8;
/// Asks in one pull, and asks in `pending-claims.json`.
pub const PULL_ASKS: usize = 16;
/// The longest a pull may be held.
pub const PULL_WAIT: Millis = Millis::from_secs(30);
/// Faults that a heartbeat may name.
pub const FAULTS: usize = 16;
/// The words of one fault.
pub const FAULT_DETAIL_BYTES: usize = 200;
/// Directives in one answer.
pub const DIRECTIVES: usize = 256;
/// Tasks of one project that are applied together.
pub const APPLY_TASKS: usize = 10_000;
/// A body that applies tasks.
pub const APPLY_BODY: usize = 32 * MIB;
/// Runs that a task takes with it when it is deleted.
pub const CASCADE_RUNS: usize = 1_024;
/// Rows of one page of a list or of a scan.
pub const PAGE: usize = 64;

// Sessions and leases.

/// How long a session lives without a heartbeat.
pub const SESSION_LEASE: Millis = Millis::from_secs(45);
/// How often a worker beats unless told otherwise.
pub const HEARTBEAT_INTERVAL: Millis = Millis::from_secs(15);
/// The shortest cadence a server may ask for.
pub const HEARTBEAT_INTERVAL_MIN: Millis = Millis::from_secs(5);
/// The longest cadence a server may ask for.
pub const HEARTBEAT_INTERVAL_MAX: Millis = Millis::from_secs(300);
/// Failed beats are retried at most this far apart while a lease is held.
pub const HEARTBEAT_RETRY: Millis = Millis::from_secs(2);
/// Between a claim and its `starting`.
pub const CLAIM_WINDOW: Millis = Millis::from_secs(20);
/// Between `starting` and `running` unless the revision says otherwise (`limits.start`).
pub const START_WINDOW: Millis = Millis::from_secs(10 * 60);
/// The bounds of `limits.start`.
pub const START_WINDOW_MIN: Millis = Millis::from_secs(10);
/// The bounds of `limits.start`.
pub const START_WINDOW_MAX: Millis = Millis::from_secs(24 * 60 * 60);
/// The shortest run lease (`limits.lease`).
pub const RUN_LEASE_MIN: Millis = Millis::from_secs(25);
/// The longest run lease.
pub const RUN_LEASE_MAX: Millis = Millis::from_secs(24 * 60 * 60);
/// The run lease where nothing starts in a lost run's place by itself.
pub const RUN_LEASE: Millis = Millis::from_secs(10 * 60);
/// The run lease where a lost run is retried (`on_lost = "retry"`).
pub const RUN_LEASE_RETRY: Millis = Millis::from_secs(60);
/// *Lost* is declared this long after a lease's expiry, not at it.
pub const LOST_GRACE: Millis = Millis::from_secs(2);
/// A clock that judges leases and gains more than this on the boot-time clock, beyond what clocks drift apart, has stepped.
pub const CLOCK_STEP: Millis = Millis::from_secs(1);
/// A replica that has watched the judging clock for less calls nobody late: one that was there before, and looks at the
/// clock every few seconds while a lease lives, sees a step first.
pub const CLOCK_WATCH: Millis = Millis::from_secs(8);
/// How long the operator is told that the judging clock stepped.
pub const CLOCK_STEP_TOLD: Millis = Millis::from_secs(24 * 60 * 60);
/// A claim that a worker released is not offered to it again for this long, doubling …
pub const RELEASE_BACKOFF: Millis = Millis::from_secs(30);
/// … up to this long.
pub const RELEASE_BACKOFF_MAX: Millis = Millis::from_secs(10 * 60);
/// A run due for less than this is left to a better-placed waiting worker of another replica.
pub const PLACEMENT_PREFERENCE: Millis = Millis::new(250);
/// Concurrent runs of one worker, at least one.
pub const SLOTS: u32 = 256;
/// Retries of the machinery (never spawned, lost) per run, apart from the revision's own policy.
pub const MACHINERY_RETRIES: u32 = 3;
/// Processes that an `end` names of those the kernel would not let go; more are only counted.
pub const LEFT_PIDS: usize = 16;
/// The longest back-off of a worker after `overloaded` or a broken connection.
pub const BACKOFF_MAX: Millis = Millis::from_secs(60);
/// How long a worker's drain may take unless configured.
pub const DRAIN_TIMEOUT: Millis = Millis::from_secs(10 * 60);
/// How long the control plane's own drain may take, from the signal to the exit.
pub const CONTROL_DRAIN: Millis = Millis::from_secs(10);
/// How much of it requests have that are being answered; what is left closes the store.
pub const CONTROL_DRAIN_REQUESTS: Millis = Millis::from_secs(7);

// Dispatch.

/// Workers that one placement is weighed for, after matching.
pub const CANDIDATES: usize = 64;
/// Rows of one page of a dispatch cycle.
pub const DISPATCH_PAGE: usize = 8;
/// Pages of one dispatch cycle.
pub const DISPATCH_PAGES: usize = 16;
/// The most rows that any page of a dispatch cycle may have.
pub const DISPATCH_PAGE_MAX: usize = 64;
/// Claims of one dispatch cycle.
pub const DISPATCH_CLAIMS: usize = 64;
/// Waiting workers that a replica announces to the others.
pub const ANNOUNCED: usize = 32;
/// How often a replica repeats what it announced while somebody waits there.
pub const ANNOUNCE_EVERY: Millis = Millis::from_secs(5);
/// How long an announcement that is not repeated is believed: a replica that died is forgotten after it.
pub const ANNOUNCED_FOR: Millis = Millis::from_secs(15);
/// Replicas whose announcements are kept.
pub const REPLICAS: usize = 64;
/// Runs of which a replica keeps that it left them to another; it leaves no more.
pub const LEFT: usize = 1024;
/// Runs that an explanation names of those that hold the places of a full limit; more are only counted.
pub const HOLDERS: usize = 8;

// Certificates and enrollment.

/// How long an enrollment token lives unless told otherwise.
pub const ENROLLMENT_TTL: Millis = Millis::from_secs(15 * 60);
/// The longest an enrollment token may live.
pub const ENROLLMENT_TTL_MAX: Millis = Millis::from_secs(7 * 24 * 60 * 60);
/// How long a worker's certificate lives; it is renewed from the half on.
pub const CERTIFICATE_TTL: Millis = Millis::from_secs(90 * 24 * 60 * 60);
/// A certificate signing request.
pub const CSR_BYTES: usize = 4 * KIB;

/// How long a granted takeover counts unless told otherwise.
pub const TAKEOVER_TTL: Millis = Millis::from_secs(15 * 60);
/// The longest that a granted takeover may count.
pub const TAKEOVER_TTL_MAX: Millis = Millis::from_secs(24 * 60 * 60);

/// Attempts of a destroyed worker that one transaction settles; more come in further ones.
pub const DESTROYED_PAGE: usize = 64;

// The inbox.

/// Records of an inbox unless configured.
pub const INBOX_RECORDS: usize = 64;
/// Records that no configuration may exceed.
pub const INBOX_RECORDS_MAX: usize = 1024;
/// One record.
pub const INBOX_RECORD_BYTES: usize = 160 * KIB;

// Disks. On a small file system the marks are shares of it, see [`crate::disk`].

/// With less free, a control plane takes no log bytes: they stay on the workers.
pub const DISK_FOR_LOGS: u64 = 128 << 20;
/// With less free, a control plane takes no new work.
pub const DISK_FOR_WORK: u64 = 32 << 20;
/// What a control plane reserves for renewals and ends, once for the database and once for its log. The second part is
/// covered by one region of the log's index, which therefore never has to grow while the disk is full.
pub const DISK_RESERVE: u64 = 16 << 20;
/// With less free, a failed write failed for lack of space.
pub const DISK_EXHAUSTED: u64 = 1 << 20;
/// With less free, a worker accepts no offer.
pub const DISK_FOR_OFFERS: u64 = 32 << 20;

// Events.

/// Kept events of refused or late calls per attempt; more are dropped.
pub const DEDUPLICATED_EVENTS_PER_ATTEMPT: usize = 8;
/// The detail of one event.
pub const EVENT_DETAIL_BYTES: usize = 4 * KIB;

// Canonical bytes and what has them.

/// Lists and maps inside each other.
pub const CANONICAL_DEPTH: usize = 16;
/// Canonical capabilities of a worker.
pub const CAPABILITIES_BYTES: usize = 16 * KIB;
/// Canonical placement of a revision.
pub const PLACEMENT_BYTES: usize = 16 * KIB;
/// Canonical execution revision; leaves an offer room for what surrounds it.
pub const REVISION_BYTES: usize = 96 * KIB;

// Capabilities and placement.

/// Members of a collection without a limit of its own: executors, runtimes, architectures, worker ids.
pub const COLLECTION: usize = 32;
/// Labels.
pub const LABELS: usize = 64;
/// GPUs of one worker.
pub const GPUS: usize = 16;
/// Features.
pub const FEATURES: usize = 64;
/// A name or text in capabilities and placement, in bytes.
pub const NAME_BYTES: usize = 128;
/// Preferences of a placement.
pub const PREFERENCES: usize = 16;
/// A preference's weight lies between minus this and this.
pub const PREFERENCE_WEIGHT: i64 = 100;
/// Memory or disk, in MiB: one exbibyte, beyond any machine.
pub const SIZE_MIB: i64 = 1 << 40;
/// Comparators in one version range.
pub const RANGE_COMPARATORS: usize = 8;

// The revision.

/// A priority lies between minus this and this.
pub const PRIORITY: i64 = 100;
/// Arguments of a command, the program included.
pub const ARGUMENTS: usize = 1024;
/// One argument, environment value or parameter.
pub const ARGUMENT_BYTES: usize = 32 * KIB;
/// A script.
pub const SCRIPT_BYTES: usize = 64 * KIB;
/// A path of a working directory or an artifact.
pub const PATH_BYTES: usize = 1024;
/// A description.
pub const DESCRIPTION_BYTES: usize = 1024;
/// Environment variables of a revision.
pub const VARIABLES: usize = 256;
/// Parameters of a revision.
pub const PARAMETERS: usize = 64;
/// Triggers of a task.
pub const TRIGGERS: usize = 16;
/// Tasks that a task runs after.
pub const PREDECESSORS: usize = 16;
/// Successes of a task's predecessors that are read at once: more than may wait of all of them.
pub const CHAIN_ARRIVALS: usize = 256;
/// Input artifacts of a revision.
pub const INPUTS: usize = 32;
/// Patterns of artifacts to collect.
pub const ARTIFACT_PATTERNS: usize = 32;
/// A cron expression.
pub const CRON_BYTES: usize = 128;
/// The shortest and the longest span of `@every`.
pub const EVERY_MIN: Millis = Millis::from_secs(1);
/// The longest span of `@every`.
pub const EVERY_MAX: Millis = Millis::from_secs(366 * 24 * 60 * 60);
/// The shortest and the longest task timeout.
pub const TIMEOUT_MIN: Millis = Millis::from_secs(1);
/// The longest task timeout.
pub const TIMEOUT_MAX: Millis = Millis::from_secs(366 * 24 * 60 * 60);
/// Between SIGTERM and SIGKILL unless the revision says otherwise.
pub const GRACE: Millis = Millis::from_secs(10);
/// The longest grace.
pub const GRACE_MAX: Millis = Millis::from_secs(60 * 60);
/// Log quota unless the revision says otherwise, in MiB.
pub const LOG_MIB: u32 = 64;
/// The largest log quota, in MiB.
pub const LOG_MIB_MAX: u32 = 4096;
/// How long a reader of an ended attempt's log waits for its next byte: an end never waits for bytes that may not come.
pub const LOG_FOLLOW_PATIENCE: Millis = Millis::from_secs(60);
/// How long artifacts may take to upload before the end, unless the revision says otherwise.
pub const ARTIFACT_UPLOAD: Millis = Millis::from_secs(10 * 60);
/// The longest artifact upload.
pub const ARTIFACT_UPLOAD_MAX: Millis = Millis::from_secs(24 * 60 * 60);
/// The largest `limits.cpu`, in thousandths of a core.
pub const CPU_MILLI_MAX: u32 = 1_024_000;
/// The largest `limits.pids`.
pub const PIDS_MAX: u32 = 4_194_304;
/// The largest limit of runs at once: `limits.concurrency`, and a project's.
pub const CONCURRENCY_MAX: u32 = 10_000;
/// The largest `retry.max_attempts`.
pub const ATTEMPTS_MAX: u32 = 100;
/// The first back-off unless the revision says otherwise.
pub const RETRY_INITIAL: Millis = Millis::from_secs(10);
/// The longest back-off unless the revision says otherwise.
pub const RETRY_MAX: Millis = Millis::from_secs(10 * 60);
/// The longest back-off that a revision may ask for.
pub const RETRY_MAX_MAX: Millis = Millis::from_secs(7 * 24 * 60 * 60);
/// How far back a catch-up looks unless the trigger says otherwise.
pub const CATCHUP_WINDOW: Millis = Millis::from_secs(24 * 60 * 60);
/// The longest catch-up window.
pub const CATCHUP_WINDOW_MAX: Millis = Millis::from_secs(366 * 24 * 60 * 60);
/// Runs that one catch-up may start unless the trigger says otherwise.
pub const CATCHUP_RUNS: u32 = 10;
/// Runs that one catch-up may start.
pub const CATCHUP_RUNS_MAX: u32 = 1000;
/// An instant that is settled later than this after it was due was missed: nothing could fire.
pub const FIRE_IN_TIME: Millis = Millis::from_secs(60);
/// While an instant waits for its turn, how often what stands in its way is looked at.
pub const OWING_LOOK: Millis = Millis::new(500);
/// A trigger whose row cannot be read is looked at again after this.
pub const DAMAGED_LOOK: Millis = Millis::from_secs(60);
/// Lines of its ledger that every trigger keeps, the newest: months of a daily one.
pub const LEDGER_LINES: usize = 1000;
/// How long it keeps those before them: a week of one that fires every second is the most that a ledger ever holds.
pub const LEDGER_AGE: Millis = Millis::from_secs(7 * 24 * 60 * 60);
/// How often ledgers are looked through for what is kept no longer.
pub const LEDGER_LOOK: Millis = Millis::from_secs(10 * 60);
/// Instants that one backfill may run.
pub const BACKFILL_RUNS: u32 = 1000;
/// Calls of one webhook that a replica takes every second …
pub const WEBHOOK_CALLS_PER_SECOND: u64 = 1;
/// … and at once.
pub const WEBHOOK_CALLS_BURST: u64 = 20;
/// The longest jitter of a trigger.
pub const JITTER_MAX: Millis = Millis::from_secs(60 * 60);

// What the doctor tells.

/// Bytes free on the disk of a control plane below which there is a problem.
pub const DISK_FREE_NEEDED: u64 = 64 * 1024 * 1024;
/// Bytes free below which somebody should look.
pub const DISK_FREE_WANTED: u64 = 1024 * 1024 * 1024;
/// A write-ahead log longer than this is not written back in time.
pub const WAL_WARNING: u64 = 256 * 1024 * 1024;
/// A worker's certificate that ends sooner is told.
pub const CERTIFICATE_WARNING: Millis = Millis::from_secs(14 * 24 * 60 * 60);
/// The CA's certificate that ends sooner is told.
pub const CA_WARNING: Millis = Millis::from_secs(180 * 24 * 60 * 60);
/// Clocks that differ by less are taken to agree.
pub const CLOCK_SKEW: Millis = Millis::from_secs(60);

// What is carried fits into what carries it.
const _: () = assert!(REVISION_BYTES + CAPABILITIES_BYTES <= OFFER_BYTES);
const _: () = assert!(OFFER_BYTES + 16 * KIB <= INBOX_RECORD_BYTES);
const _: () = assert!(CAPABILITIES_BYTES < REGISTRATION_BODY && REVISION_BYTES < REVISION_BODY);
const _: () = assert!(PLACEMENT_BYTES + SCRIPT_BYTES <= REVISION_BYTES);
const _: () = assert!(INBOX_RECORDS <= INBOX_RECORDS_MAX);
const _: () = assert!(DISK_EXHAUSTED < DISK_FOR_WORK && DISK_FOR_WORK < DISK_FOR_LOGS);

// What a judging clock may gain unseen is not what the launcher's margin or the grace before *lost* alone could not bear.
const _: () = assert!(CLOCK_STEP.get() < LOST_GRACE.get());

// A session survives two lost heartbeats, and the shortest run lease asks for no quicker cadence than allowed.
const _: () = assert!(HEARTBEAT_INTERVAL.times(3).get() <= SESSION_LEASE.get());
const _: () = assert!(HEARTBEAT_INTERVAL_MIN.get() <= HEARTBEAT_INTERVAL.get());
const _: () = assert!(HEARTBEAT_INTERVAL.get() <= HEARTBEAT_INTERVAL_MAX.get());
const _: () = assert!(RUN_LEASE_MIN.part(5).get() >= HEARTBEAT_INTERVAL_MIN.get());
