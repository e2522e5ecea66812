//! One example of every message of the worker protocol; the golden files are these examples as bytes.

use leasehold_core::attempt::{AttemptState, EvidenceKind, LimitMeans, RejectReason, Resolution, StopReason};
use leasehold_core::canonical::Value;
use leasehold_core::capability::{Capabilities, Claimed};
use leasehold_core::claim::ReleaseReason;
use leasehold_core::counter::{
    AttemptNumber, CallbackSequence, FenceNumber, LeaseGeneration, LeaseVersion, SessionGeneration, SessionVersion,
};
use leasehold_core::crypto::{CompletionToken, Digest, Domain, EnrollmentToken, LeaseToken, Ticket};
use leasehold_core::device::Devices;
use leasehold_core::fault::FaultKind;
use leasehold_core::frame::CutReason;
use leasehold_core::id::{AttemptId, OfferId, RunId, SessionId};
use leasehold_core::offer;
use leasehold_core::placement::MismatchClass;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::revision::Revision;
use leasehold_core::run::{RunState, StopIntentReason};
use leasehold_core::session::{SessionProjection, SessionState};
use leasehold_core::time::{Millis, UtcMillis};
use leasehold_wire::v1::drain::{DrainAnswer, DrainRequest};
use leasehold_wire::v1::end::{
    CancelIncomplete, Completion, Cut, EndAnswer, EndRequest, EndVerdict, Ending, Exit, LimitsKept, Log, Usage,
};
use leasehold_wire::v1::enroll::{EnrollAnswer, EnrollRequest};
use leasehold_wire::v1::fence::LeaseProof;
use leasehold_wire::v1::heartbeat::{Fault, HeartbeatAnswer, HeartbeatRequest, LeaseAnswer, Renewal, RenewalVerdict};
use leasehold_wire::v1::logs::LogsAnswer;
use leasehold_wire::v1::offer::Offer;
use leasehold_wire::v1::offline::{OfflineAnswer, OfflineRequest};
use leasehold_wire::v1::problem::{Problem, Refused};
use leasehold_wire::v1::projection::{Directive, Lease, Session};
use leasehold_wire::v1::pull::{AskAnswer, AskRequest, AskVerdict, Idle, IdleReason, PullAnswer, PullRequest};
use leasehold_wire::v1::register::{RegisterAnswer, RegisterRequest};
use leasehold_wire::v1::release::{ReleaseAnswer, ReleaseRequest};
use leasehold_wire::v1::running::{Callback, Handle, Running, RunningAnswer, RunningRequest};
use leasehold_wire::v1::starting::{MayStart, StartingAnswer, StartingRequest, StartingVerdict};

/// 2026-01-31T03:00:00Z.
pub(crate) const AT: UtcMillis = UtcMillis::new(1_769_828_400_000);

pub(crate) fn session_id() -> SessionId {
    "0198a3c1-0000-7000-8000-000000000001".parse().unwrap()
}

pub(crate) fn attempt_id() -> AttemptId {
    "0198a3c1-0000-7000-8000-000000000002".parse().unwrap()
}

pub(crate) fn run_id() -> RunId {
    "0198a3c1-0000-7000-8000-000000000003".parse().unwrap()
}

pub(crate) fn offer_id(n: u8) -> OfferId {
    format!("0198a3c1-0000-7000-8000-0000000001{n:02x}").parse().unwrap()
}

pub(crate) fn proof() -> LeaseProof {
    LeaseProof { offer_id: offer_id(1), generation: LeaseGeneration::FIRST, token: LeaseToken::from_bytes([0x11; 32]) }
}

fn generation() -> SessionGeneration {
    SessionGeneration::new(3).unwrap()
}

fn version() -> SessionVersion {
    SessionVersion::new(41).unwrap()
}

fn session() -> Session {
    Session::from(&SessionProjection {
        generation: generation(),
        version: version(),
        state: SessionState::Active,
        remaining: Millis::from_secs(45),
        interval: Millis::from_secs(15),
    })
}

fn lease(attempt_state: AttemptState) -> Lease {
    Lease {
        generation: LeaseGeneration::FIRST,
        version: LeaseVersion::new(7).unwrap(),
        remaining_ms: Millis::from_secs(60),
        length_ms: Millis::from_secs(60),
        attempt_state,
    }
}

pub(crate) fn capabilities() -> Capabilities {
    Capabilities::new(Claimed {
        arch: "x86_64".to_owned(),
        os: "linux".to_owned(),
        executors: ["process".to_owned()].into(),
        runtimes: [("python".to_owned(), "3.11.2".parse().unwrap())].into(),
        labels: [("site".to_owned(), "office".to_owned())].into(),
        memory_mib: 16_000,
        disk_mib: 100_000,
        gpus: Vec::new(),
        features: ["cgroup-kill".to_owned()].into(),
    })
    .unwrap()
}

pub(crate) fn revision() -> Revision {
    Revision::of_argv(["sh", "-c", "uname -a; exit 7"]).unwrap()
}

pub(crate) fn core_offer() -> offer::Offer {
    let revision = revision();
    offer::Offer {
        offer: offer_id(1),
        run: run_id(),
        attempt: attempt_id(),
        number: AttemptNumber::FIRST,
        project: "default".parse().unwrap(),
        task: Some("nightly-report".parse().unwrap()),
        digest: revision.digest(),
        revision,
        fence: FenceNumber::FIRST,
        lease_generation: LeaseGeneration::FIRST,
        lease_version: LeaseVersion::FIRST,
        remaining: Millis::from_secs(20),
        lease: Millis::from_secs(600),
        score: 10,
        devices: Devices::default(),
        created_at: AT,
        after: None,
        scheduled_at: Some(AT.minus(Millis::from_secs(7))),
    }
}

pub(crate) fn running() -> Running {
    Running {
        handle: Handle {
            boot_id: "5f0c9a52-4a0e-4a3b-9d4c-0f6c1f1d2e3a".parse().unwrap(),
            pid: 4242,
            start_time: 918_273,
        },
        callback: Callback {
            sequence: CallbackSequence::FIRST,
            token_digest: CompletionToken::from_bytes([0x22; 32]).digest(),
        },
        started_at_ms: AT,
    }
}

pub(crate) fn enroll() -> EnrollRequest {
    EnrollRequest { token: EnrollmentToken::from_bytes([0x33; 32]), csr: b"a DER request".to_vec() }
}

pub(crate) fn enroll_answer() -> EnrollAnswer {
    EnrollAnswer {
        worker_id: "nas".parse().unwrap(),
        certificates: vec![b"a DER certificate".to_vec()],
        trust_bundle: vec![b"the DER certificate of the CA".to_vec()],
        ticket: Ticket::from_bytes([0x44; 32]),
        expires_at_ms: AT,
    }
}

pub(crate) fn register() -> RegisterRequest {
    let boot = "5f0c9a52-4a0e-4a3b-9d4c-0f6c1f1d2e3a".parse().unwrap();
    RegisterRequest::new(Ticket::from_bytes([0x44; 32]), &capabilities(), 4, boot, "0.1.0")
}

pub(crate) fn register_answer() -> RegisterAnswer {
    RegisterAnswer { session: session(), ticket: Ticket::from_bytes([0x55; 32]) }
}

pub(crate) fn heartbeat() -> HeartbeatRequest {
    HeartbeatRequest {
        session_generation: generation(),
        session_version: version(),
        slots: 0,
        draining: true,
        faults: Some(vec![Fault {
            kind: FaultKind::RecordDamaged,
            attempt_id: Some(attempt_id()),
            detail: "the inbox record contradicts what is on disk".to_owned(),
            since_ms: UtcMillis::new(1_769_828_400_000),
        }]),
        renewals: vec![Renewal {
            attempt_id: attempt_id(),
            lease: proof(),
            version: LeaseVersion::new(6).unwrap(),
            cancel_incomplete: Some(CancelIncomplete { count: 1, pids: vec![4243] }),
        }],
    }
}

pub(crate) fn heartbeat_answer() -> HeartbeatAnswer {
    HeartbeatAnswer {
        session: session(),
        leases: vec![
            LeaseAnswer { attempt_id: attempt_id(), verdict: RenewalVerdict::Renewed(lease(AttemptState::Running)) },
            LeaseAnswer {
                attempt_id: "0198a3c1-0000-7000-8000-000000000004".parse().unwrap(),
                verdict: RenewalVerdict::Refused(Refused {
                    code: RefusalCode::LeaseFenced,
                    detail: "this worker holds no such lease".to_owned(),
                    lease: None,
                }),
            },
        ],
        directives: vec![
            Directive::Stop { attempt_id: attempt_id(), reason: StopIntentReason::Cancel },
            Directive::Drain,
        ],
        now_ms: UtcMillis::new(1_769_828_400_000),
    }
}

pub(crate) fn drain() -> DrainRequest {
    DrainRequest { session_generation: generation(), session_version: version() }
}

pub(crate) fn drain_answer() -> DrainAnswer {
    DrainAnswer { session: Session { state: SessionState::Draining, ..session() } }
}

pub(crate) fn offline() -> OfflineRequest {
    OfflineRequest { session_generation: generation(), session_version: version() }
}

pub(crate) fn offline_answer() -> OfflineAnswer {
    OfflineAnswer { session: Session { state: SessionState::Offline, remaining_ms: Millis::ZERO, ..session() } }
}

pub(crate) fn pull() -> PullRequest {
    let ask = |n: u8| AskRequest { offer_id: offer_id(n), lease_token: LeaseToken::from_bytes([n; 32]) };
    PullRequest { session_generation: generation(), asks: vec![ask(1), ask(2), ask(3)], wait_ms: Millis::from_secs(30) }
}

pub(crate) fn pull_answer() -> PullAnswer {
    let offer = Box::new(Offer::from(&core_offer()));
    PullAnswer {
        asks: vec![
            AskAnswer { offer_id: offer_id(1), verdict: AskVerdict::Granted(offer) },
            AskAnswer { offer_id: offer_id(2), verdict: AskVerdict::None },
            AskAnswer { offer_id: offer_id(3), verdict: AskVerdict::Gone },
        ],
        idle: Some(Idle {
            reason: IdleReason::NoMatch,
            counts: [(MismatchClass::RuntimeMissing, 2), (MismatchClass::Label, 1)].into(),
            truncated: false,
        }),
        directives: vec![
            Directive::Stop {
                attempt_id: "0198a3c1-0000-7000-8000-000000000005".parse().unwrap(),
                reason: StopIntentReason::Timeout,
            },
            Directive::Resume,
        ],
        held_ms: Millis::new(1234),
    }
}

pub(crate) fn starting() -> StartingRequest {
    StartingRequest { session_generation: generation(), lease: proof() }
}

pub(crate) fn starting_answer() -> StartingAnswer {
    StartingAnswer {
        verdict: StartingVerdict::Accepted(MayStart {
            lease: lease(AttemptState::Starting),
            timeout_remaining_ms: Some(Millis::from_secs(1800)),
        }),
    }
}

pub(crate) fn starting_answer_stopped() -> StartingAnswer {
    let lease = Lease { remaining_ms: Millis::ZERO, ..lease(AttemptState::Cancelled) };
    StartingAnswer { verdict: StartingVerdict::Stopped { lease } }
}

pub(crate) fn running_request() -> RunningRequest {
    RunningRequest { session_generation: generation(), lease: proof(), running: running() }
}

pub(crate) fn running_answer() -> RunningAnswer {
    RunningAnswer { lease: lease(AttemptState::Running) }
}

pub(crate) fn release() -> ReleaseRequest {
    ReleaseRequest { session_generation: generation(), lease: proof(), reason: ReleaseReason::DiskLow }
}

pub(crate) fn release_answer() -> ReleaseAnswer {
    ReleaseAnswer {}
}

pub(crate) fn logs_answer() -> LogsAnswer {
    LogsAnswer { durable: 65_536 }
}

fn ended(ending: Ending) -> EndRequest {
    EndRequest {
        session_generation: generation(),
        lease: proof(),
        ending,
        completion: None,
        running: None,
        log: None,
        usage: None,
        cancel_incomplete: None,
    }
}

pub(crate) fn end_exited() -> EndRequest {
    EndRequest {
        completion: Some(Completion {
            sequence: CallbackSequence::FIRST,
            token: CompletionToken::from_bytes([0x22; 32]),
        }),
        running: Some(running()),
        log: Some(Log {
            length: 65_536,
            digest: Digest::of(Domain::Log, b"framed bytes"),
            cut: Some(Cut { reason: CutReason::Quota, stdout: 1_048_576, stderr: 0 }),
            finished: true,
        }),
        usage: Some(Usage {
            user_ms: Millis::new(120),
            system_ms: Millis::new(30),
            max_rss_kib: 9_216,
            oom_killed: false,
            limits: LimitsKept { memory: Some(LimitMeans::Cgroup), cpu: None, pids: Some(LimitMeans::Rlimit) },
        }),
        cancel_incomplete: None,
        ..ended(Ending::Exited { status: Exit::Code(7), at_ms: AT })
    }
}

pub(crate) fn end_stopped() -> EndRequest {
    let ending = Ending::Stopped { reason: StopReason::Cancel, status: Exit::Signal(15), at_ms: AT };
    let cancel_incomplete = Some(CancelIncomplete { count: 18, pids: vec![4243, 4250] });
    EndRequest { running: None, ending, cancel_incomplete, ..end_exited() }
}

pub(crate) fn end_rejected() -> EndRequest {
    ended(Ending::Rejected { reason: RejectReason::Exec, detail: "no such program: pythno".to_owned() })
}

pub(crate) fn end_never_spawned() -> EndRequest {
    ended(Ending::NeverSpawned)
}

pub(crate) fn end_lost() -> EndRequest {
    ended(Ending::Lost { evidence: EvidenceKind::MachineRebooted })
}

pub(crate) fn end_answer() -> EndAnswer {
    EndAnswer {
        verdict: EndVerdict::Accepted,
        attempt_state: AttemptState::Failed,
        run_state: RunState::Failed,
        resolution: Resolution::None,
    }
}

pub(crate) fn problem() -> Problem {
    let refusal = Refusal::new(RefusalCode::VersionConflict, "the session is at version 41, not 40")
        .showing_session(SessionProjection::from(&session()));
    Problem::from(&refusal)
}

pub(crate) fn problem_waiting() -> Problem {
    let refusal = Refusal::new(
        RefusalCode::SessionLive,
        "a session of this worker is live on another boot: it must fall silent first",
    )
    .retry_after(Millis::new(7_500));
    Problem::from(&refusal)
}

pub(crate) fn problem_unknown() -> Problem {
    let refusal = Refusal::new(RefusalCode::Overloaded, "whether it was done is not known: send the same call again")
        .retry_after(Millis::from_secs(1));
    Problem::from(&refusal).of_an_unknown_commit()
}

/// The canonical value of bytes that are known to be JSON.
pub(crate) fn value(bytes: &[u8]) -> Value {
    Value::parse(bytes, usize::MAX).unwrap()
}
