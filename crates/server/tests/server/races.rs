//! Calls that arrive at once, over the whole server and a real database: whatever the order, one of them counts.

use std::collections::BTreeSet;

use leasehold_control::Caller;
use leasehold_core::id::SessionId;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::run::RunState;
use leasehold_core::time::{Clock as _, Millis};
use leasehold_wire::v1::end::{EndAnswer, EndVerdict};
use leasehold_wire::v1::enroll::{EnrollAnswer, EnrollRequest};
use leasehold_wire::v1::heartbeat::{HeartbeatAnswer, HeartbeatRequest};
use leasehold_wire::v1::problem::Problem;
use leasehold_wire::v1::pull::{AskRequest, AskVerdict, PullAnswer};
use leasehold_wire::v1::register::RegisterAnswer;
use leasehold_wire::v1::running::{RunningAnswer, RunningRequest};
use leasehold_wire::v1::starting::{StartingAnswer, StartingRequest, StartingVerdict};
use leasehold_wire::{Message, encode, route};

use crate::fixture::{Cluster, Connection, Machine, Taken, csr, new_key};

fn granted(answer: &PullAnswer, ask: &AskRequest) -> Option<Taken> {
    match &answer.asks[0].verdict {
        AskVerdict::Granted(offer) => Some(Taken { offer: (**offer).clone(), ask: ask.clone() }),
        AskVerdict::None => None,
        AskVerdict::Gone => panic!("a fresh ask is never gone"),
    }
}

async fn pull(mut connection: Connection, machine: &Machine<'_>, ask: &AskRequest, wait: Millis) -> PullAnswer {
    let body = machine.pull_request(std::slice::from_ref(ask), wait);
    connection.said("POST", &route::pull(machine.session), body).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_that_race_for_the_last_run_get_it_once_two_hundred_times() {
    let cluster = Cluster::on_sqlite().await;
    let (mut one, mut other) = (cluster.agent("one").await, cluster.agent("other").await);
    let mut won = [0, 0];
    for round in 0..200 {
        let run = cluster.submit(&["true"]).await;
        let asks = [cluster.ask(), cluster.ask()];
        let (first, second) = tokio::join!(
            pull(one.connection.clone(), &one, &asks[0], Millis::ZERO),
            pull(other.connection.clone(), &other, &asks[1], Millis::ZERO),
        );
        let (first, second) = (granted(&first, &asks[0]), granted(&second, &asks[1]));
        let (winner, taken) = match (first, second) {
            (Some(taken), None) => (0, taken),
            (None, Some(taken)) => (1, taken),
            (first, second) => panic!("round {round}: {first:?} {second:?}"),
        };
        assert_eq!(taken.offer.run_id, run);
        won[winner] += 1;
        let machine = if winner == 0 { &mut one } else { &mut other };
        machine.starting(&taken).await.unwrap();
        assert_eq!(machine.exited(&taken, 0, b"").await.unwrap().run_state, RunState::Succeeded);
    }
    println!("won by one and the other: {won:?}");
    drop((one, other));
    cluster.stop().await;
}

/// The same call on two connections at once.
async fn twice<T: Message>(
    connections: &[Connection; 2],
    method: &str,
    path: &str,
    bodies: [Vec<u8>; 2],
) -> [Result<T, Box<Problem>>; 2] {
    let [one, other] = bodies;
    let (mut first, mut second) = (connections[0].clone(), connections[1].clone());
    let (one, other) = tokio::join!(first.said::<T>(method, path, one), second.said::<T>(method, path, other));
    [one, other]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_sent_twice_at_once_counts_once() {
    let cluster = Cluster::on_sqlite().await;
    let machine = cluster.machine("nas").await;
    let connections = [machine.connection.clone(), cluster.connect(Some(&machine.identity)).await];

    let registration = machine.registration();
    let path = route::session(machine.session);
    let [one, other] = twice::<RegisterAnswer>(&connections, "PUT", &path, [registration.clone(), registration]).await;
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!((one.session.generation, &one.ticket), (other.session.generation, &other.ticket));

    for round in 0..50 {
        let run = cluster.submit(&["true"]).await;
        let ask = cluster.ask();
        let wait = Millis::from_secs(10);
        let (one, other) = tokio::join!(
            pull(connections[0].clone(), &machine, &ask, wait),
            pull(connections[1].clone(), &machine, &ask, wait),
        );
        // The earlier of two pulls of one session may be told that the later has its place.
        let taken: Vec<Taken> = [granted(&one, &ask), granted(&other, &ask)].into_iter().flatten().collect();
        let attempts: BTreeSet<_> = taken.iter().map(Taken::attempt).collect();
        assert_eq!(attempts.len(), 1, "round {round}: {taken:?}");
        let taken = &taken[0];
        assert_eq!(taken.offer.run_id, run);
        let (session, attempt, session_generation) = (machine.session, taken.attempt(), machine.generation);

        let body = encode(&StartingRequest { session_generation, lease: taken.proof() });
        let answers =
            twice::<StartingAnswer>(&connections, "POST", &route::starting(session, attempt), [body.clone(), body])
                .await;
        let verdicts = answers.map(|answer| answer.unwrap().verdict);
        let accepted = verdicts.iter().filter(|verdict| matches!(verdict, StartingVerdict::Accepted(_))).count();
        let again = verdicts.iter().filter(|verdict| matches!(verdict, StartingVerdict::AlreadyStarting(_))).count();
        assert_eq!((accepted, again), (1, 1), "round {round}: {verdicts:?}");

        let running = RunningRequest { session_generation, lease: taken.proof(), running: (&taken.running()).into() };
        let mut otherwise = running.clone();
        otherwise.running.handle.pid += 1;
        let bodies = [encode(&running), encode(&otherwise)];
        let answers = twice::<RunningAnswer>(&connections, "POST", &route::running(session, attempt), bodies).await;
        let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).map(|no| no.code).collect();
        assert_eq!(refused, [RefusalCode::ConflictReplay], "round {round}: {answers:?}");

        // Two ends and a cancel; the end that was first is what both are told.
        let bodies = [taken.end(session_generation, 0, b""), taken.end(session_generation, 9, b"")];
        let caller = Caller::local(1000);
        let path = route::end(session, attempt);
        let (answers, _) = tokio::join!(
            twice::<EndAnswer>(&connections, "POST", &path, bodies),
            cluster.control.cancel(&caller, run, None),
        );
        let ends = answers.map(Result::unwrap);
        let accepted: Vec<_> = ends.iter().filter(|end| end.verdict == EndVerdict::Accepted).collect();
        assert_eq!(accepted.len(), 1, "round {round}: {ends:?}");
        assert_eq!(ends[0].run_state, ends[1].run_state);
        let view = cluster.control.run_view(run).await.unwrap();
        assert_eq!(view.run.state, accepted[0].run_state);
        assert!(matches!(view.run.state, RunState::Succeeded | RunState::Failed), "{:?}", view.run.state);
    }

    // Of two beats of one version one counts; the machine is the same ever after.
    let beat = HeartbeatRequest {
        session_generation: machine.generation,
        session_version: machine.version,
        slots: 4,
        draining: false,
        faults: None,
        renewals: Vec::new(),
    };
    let path = route::heartbeat(machine.session);
    let answers = twice::<HeartbeatAnswer>(&connections, "POST", &path, [encode(&beat), encode(&beat)]).await;
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).map(|no| no.code).collect();
    assert_eq!(refused, [RefusalCode::VersionConflict], "{answers:?}");
    drop(machine);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_machines_that_enroll_or_register_at_once_one_is_the_worker() {
    let cluster = Cluster::on_sqlite().await;
    // One token, two keys.
    let invitation = cluster.invite("nas").await;
    let strangers = [cluster.connect(None).await, cluster.connect(None).await];
    let request = |key: &rcgen::KeyPair| EnrollRequest { token: invitation.token.token.clone(), csr: csr(key) };
    let bodies = [encode(&request(&new_key())), encode(&request(&new_key()))];
    let answers = twice::<EnrollAnswer>(&strangers, "POST", route::ENROLL, bodies).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{:?}", answers.map(Result::err));

    // One ticket, two sessions: the copy is told apart.
    let machine = cluster.machine("other").await;
    let connections = [machine.connection.clone(), cluster.connect(Some(&machine.identity)).await];
    let body = machine.registration();
    let sessions = [machine.session, SessionId::new(cluster.clock.utc(), &*cluster.entropy)];
    let (mut first, mut second) = (connections[0].clone(), connections[1].clone());
    let paths = sessions.map(route::session);
    let (one, other) = tokio::join!(
        first.said::<RegisterAnswer>("PUT", &paths[0], body.clone()),
        second.said::<RegisterAnswer>("PUT", &paths[1], body),
    );
    let refused: Vec<_> = [&one, &other].into_iter().filter_map(|said| said.as_ref().err()).map(|no| no.code).collect();
    assert_eq!(refused, [RefusalCode::TicketSpent], "{one:?} {other:?}");
    drop(machine);
    cluster.stop().await;
}
