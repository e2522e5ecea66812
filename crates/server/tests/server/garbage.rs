//! Garbage at every route. Of workers: golden messages, and right messages of a live session, cut, spliced and twisted.
//!
//! Whatever comes, the answer is the protocol's own: a message or a problem with a documented code, never a 5xx, and the
//! next right call is answered as if nothing had been. Random; the seed is printed and replays.

use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;
use hyper::Request;
use leasehold_core::id::RunId;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::role::Role;
use leasehold_core::time::Millis;
use leasehold_server::Needs;
use leasehold_wire::api::route as route_api;
use leasehold_wire::v1::drain::DrainRequest;
use leasehold_wire::v1::fence::LeaseProof;
use leasehold_wire::v1::heartbeat::{HeartbeatRequest, Renewal};
use leasehold_wire::v1::logs::LogFence;
use leasehold_wire::v1::problem::Problem;
use leasehold_wire::v1::release::ReleaseRequest;
use leasehold_wire::v1::running::RunningRequest;
use leasehold_wire::v1::starting::StartingRequest;
use leasehold_wire::{codes, encode, parse, route};

use crate::fixture::{Answer, Cluster, Machine, Taken, get};

/// `SplitMix64`: small, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    fn piece(&mut self) -> &'static str {
        PIECES[self.below(PIECES.len())]
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// What parsers and counters stumble over.
const PIECES: &[&str] = &[
    "null",
    "true",
    "{}",
    "[]",
    "[[[[[[[[[[[[[[[[[[[[[[",
    "0",
    "-1",
    "-0",
    "1e9",
    "0.5",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\u{202e}\u{10ffff}\"",
    "\"../../etc/passwd\"",
    "\"' OR 1=1 --\"",
    "\"leasehold/end/v1\"",
    "\"leasehold/heartbeat/v2\"",
    "\"00000000-0000-0000-0000-000000000000\"",
    "\"ERERERERERERERERERERERERERERERERERERERERERE\"",
    "\"schema\":\"leasehold/pull/v1\",",
    ",",
    "}",
    "]",
    "\\",
];

/// Twists a body once.
fn twist(dice: &mut Dice, body: &mut Vec<u8>, others: &[Vec<u8>]) {
    let at = dice.below(body.len() + 1);
    match dice.below(9) {
        0 => {
            if let Some(byte) = body.get_mut(at) {
                *byte ^= 1 << dice.below(8);
            }
        }
        1 => body.truncate(at),
        2 => drop(body.drain(at..(at + dice.below(40)).min(body.len()))),
        3 => drop(body.splice(at..at, dice.piece().bytes())),
        4 => {
            let other = dice.pick(others);
            let from = dice.below(other.len() + 1);
            let to = (from + dice.below(60)).min(other.len());
            drop(body.splice(at..at, other[from..to].iter().copied()));
        }
        5 => {
            let to = (at + dice.below(80)).min(body.len());
            let again = body[at..to].to_vec();
            drop(body.splice(at..at, again));
        }
        6 => drop(body.splice(at..at, std::iter::repeat_n(b' ', dice.below(70_000)))),
        // One value for another: what is left is JSON, and most often reaches the schema.
        _ => {
            let colons: Vec<usize> = (0..body.len()).filter(|at| body[*at] == b':').collect();
            if colons.is_empty() {
                return;
            }
            let from = dice.pick(&colons) + 1;
            let to = (from..body.len()).find(|at| matches!(body[*at], b',' | b'}' | b']')).unwrap_or(body.len());
            drop(body.splice(from..to, dice.piece().bytes()));
        }
    }
}

fn golden() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 20, "the golden files are there");
    files.into_iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Right calls of the machine, each with its method and path.
fn right_calls(machine: &Machine<'_>, taken: &Taken) -> Vec<(&'static str, String, Vec<u8>)> {
    let (session, attempt, session_generation) = (machine.session, taken.attempt(), machine.generation);
    let renewals = vec![Renewal {
        attempt_id: attempt,
        lease: taken.proof(),
        version: taken.offer.lease.version,
        cancel_incomplete: None,
    }];
    let beat = HeartbeatRequest {
        session_generation,
        session_version: machine.version,
        slots: 1,
        draining: false,
        faults: None,
        renewals,
    };
    let drain = DrainRequest { session_generation, session_version: machine.version };
    let reason = leasehold_core::claim::ReleaseReason::Draining;
    let release = ReleaseRequest { session_generation, lease: taken.proof(), reason };
    let running = RunningRequest { session_generation, lease: taken.proof(), running: (&taken.running()).into() };
    let starting = StartingRequest { session_generation, lease: taken.proof() };
    vec![
        ("PUT", route::session(session), machine.registration()),
        ("POST", route::heartbeat(session), encode(&beat)),
        ("POST", route::drain(session), encode(&drain)),
        ("POST", route::pull(session), machine.pull_request(&[machine.cluster.ask()], Millis::ZERO)),
        ("POST", route::starting(session, attempt), encode(&starting)),
        ("POST", route::running(session, attempt), encode(&running)),
        ("POST", route::release(session, attempt), encode(&release)),
        ("POST", route::end(session, attempt), taken.end(session_generation, 0, b"")),
    ]
}

fn check(answer: &Answer, what: &str) {
    let status = answer.status.as_u16();
    assert!(status < 500, "{what}: {status} {}", answer.text());
    if status >= 300 {
        let problem: Problem = parse(&answer.body).unwrap_or_else(|error| panic!("{what}: {error}: {}", answer.text()));
        let routed = [404, 405].contains(&status) && problem.code == RefusalCode::InvalidRequest;
        assert!(routed || codes::status(problem.code) == status, "{what}: {}", answer.text());
        assert!(problem.detail.chars().count() <= 512, "{what}: {}", problem.detail);
    }
}

async fn throw(seed: u64, rounds: u32) {
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let cluster = Cluster::start().await;
    let mut bystander = cluster.agent("bystander").await;
    let mut machine = cluster.agent("nas").await;
    cluster.submit(&["true"]).await;
    let taken = machine.run().await;
    let calls = right_calls(&machine, &taken);
    let mut bodies = golden();
    bodies.extend(calls.iter().map(|(_, _, body)| body.clone()));
    for round in 0..rounds {
        let (method, path, right) = dice.pick(&calls).clone();
        let mut path = path;
        let mut body = if dice.below(3) == 0 { dice.pick(&bodies).clone() } else { right };
        for _ in 0..=dice.below(3) {
            twist(&mut dice, &mut body, &bodies);
        }
        if dice.below(20) == 0 {
            let at = dice.below(path.len());
            path.replace_range(at..=at, ["%00", "%ff", "..", "//", "?", "Z"][dice.below(6)]);
        }
        let what = format!("seed {seed}, round {round}: {method} {path} {}", String::from_utf8_lossy(&body));
        let Ok(request) = Request::builder().method(method).uri(format!("https://localhost{path}")).body(body.into())
        else {
            continue;
        };
        check(&machine.connection.send(request).await.unwrap_or_else(|error| panic!("{what}: {error}")), &what);
        if round % 16 == 0 {
            check(&garbled_log(&mut dice, &mut machine, &taken).await, &format!("seed {seed}, round {round}: logs"));
        }
    }
    // Who sent nothing of it is served as ever.
    cluster.submit(&["true"]).await;
    let other = bystander.run().await;
    assert!(bystander.exited(&other, 0, b"").await.is_ok());
    drop((machine, bystander));
    cluster.stop().await;
}

/// A piece of log with any offset and any headers.
async fn garbled_log(dice: &mut Dice, machine: &mut Machine<'_>, taken: &Taken) -> Answer {
    let offset = *dice.pick(&[0, 1, 255, u64::from(u32::MAX), u64::MAX / 2]);
    let proof: LeaseProof = taken.proof();
    let fence = LogFence { session_generation: machine.generation, lease: proof };
    let path = route::logs(machine.session, taken.attempt(), offset);
    let mut request = Request::post(format!("https://localhost{path}{}", dice.pick(&["", "&offset=2", "&x", "0"])));
    for (name, text) in fence.headers() {
        let text = if dice.below(4) == 0 { dice.piece().to_owned() } else { text };
        if let (0..4, Ok(value)) = (dice.below(5), hyper::header::HeaderValue::from_str(&text)) {
            request = request.header(name, value);
        }
    }
    let (name, token) = fence.token_header();
    let request = request.header(name, token.as_str());
    let length = *dice.pick(&[0, 1, 12, 4096, 262_144, 262_145, 300_000]);
    let bytes: Vec<u8> = (0..length).map(|_| u8::try_from(dice.next() & 0xff).unwrap()).collect();
    machine.connection.send(request.body(bytes.into()).unwrap()).await.unwrap()
}

/// A piece in the form in which a query or path may carry it.
fn percent(piece: &str) -> String {
    piece.bytes().fold(String::new(), |mut text, byte| {
        write!(text, "%{byte:02x}").unwrap();
        text
    })
}

/// A request of an operator in which one thing or another is garbage.
fn operators_garbage(dice: &mut Dice, run: RunId) -> Option<Request<Bytes>> {
    let routes = leasehold_server::routes();
    let info = dice.pick(&routes);
    let ids =
        [run.to_string(), run.to_string()[..6].to_owned(), "01".to_owned(), percent(dice.piece()), "%ff".to_owned()];
    let mut path = info.path.replace("{run}", dice.pick(&ids).as_str()).replace("{worker}", dice.pick(&ids).as_str());
    path = path.replace("{project}", dice.pick(&ids).as_str());
    for n in 0..dice.below(4) {
        let names = ["limit", "after", "state", "project", "task", "follow", "offset", "attempt", "raw", "x"];
        let values = ["1", "64", "-1", "pending", "true", "18446744073709551616", "%00", "", "default"];
        let value = if dice.below(2) == 0 { percent(dice.piece()) } else { (*dice.pick(&values)).to_owned() };
        path = format!("{path}{}{}={value}", if n == 0 { '?' } else { '&' }, dice.pick(&names));
    }
    // A stream that is followed has no end to wait for here.
    let path = path.replace("follow=true", "follow=false").replace("follow=1", "follow=0");
    let spec = r#"{"revision":{"command":{"argv":["true"]}},"project":"default","idempotency_key":"k"}"#;
    let mut body = spec.as_bytes().to_vec();
    for _ in 0..dice.below(3) {
        twist(dice, &mut body, &[spec.as_bytes().to_vec()]);
    }
    let mut request = Request::builder().method(info.method.clone()).uri(&path);
    if info.method != hyper::Method::GET {
        request =
            request.header("content-type", *dice.pick(&["application/json", "text/plain", "application/json; x"]));
    }
    for name in ["last-event-id", "idempotency-key"] {
        if let (0, Ok(value)) = (dice.below(4), hyper::header::HeaderValue::from_str(dice.piece())) {
            request = request.header(name, value);
        }
    }
    request.body(if info.method == hyper::Method::GET { Bytes::new() } else { body.into() }).ok()
}

#[tokio::test]
async fn garbage_of_operators_is_answered_as_a_problem_and_never_as_a_defect() {
    let seed = 7;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let cluster = Cluster::start().await;
    let run = cluster.submit(&["true"]).await;
    for round in 0..600 {
        let Some(request) = operators_garbage(&mut dice, run) else { continue };
        let what = format!("seed {seed}, round {round}: {} {}", request.method(), request.uri());
        let answer = cluster.api(Some(&cluster.token), request).await;
        assert!(answer.status.as_u16() < 500, "{what}: {} {}", answer.status, answer.text());
        if !answer.status.is_success() {
            let problem = answer.problem();
            assert!(problem.detail.chars().count() <= 1024, "{what}: {}", problem.detail);
        }
    }
    assert_eq!(cluster.api(Some(&cluster.token), get(route_api::RUNS)).await.status, hyper::StatusCode::OK);
    cluster.stop().await;
}

#[tokio::test]
async fn every_route_is_held_to_its_permission_for_every_role() {
    for role in [Role::Viewer, Role::Operator, Role::Admin] {
        let cluster = Cluster::with_token(role, None).await;
        let run = cluster.submit(&["true"]).await.to_string();
        for info in leasehold_server::routes() {
            if info.needs == Needs::Webhook {
                // No role opens it: see the tests of webhooks.
                continue;
            }
            let path = info.path.replace("{run}", &run).replace("{worker}", "nas").replace("{project}", "lab");
            let request = || {
                let request = Request::builder().method(info.method.clone()).uri(&path);
                request.header("content-type", "application/json").body(Bytes::from_static(b"{}")).unwrap()
            };
            let may = match info.needs {
                Needs::Nothing => true,
                Needs::Role(needed) => role.includes(needed),
                Needs::Webhook => false,
            };
            let (known, nobody) =
                (cluster.api(Some(&cluster.token), request()).await, cluster.api(None, request()).await);
            let what = format!("{role} at {} {}", info.method, info.path);
            assert_eq!(known.status != hyper::StatusCode::FORBIDDEN, may, "{what}: {}", known.text());
            assert_ne!(known.status, hyper::StatusCode::UNAUTHORIZED, "{what}");
            let closed = nobody.status == hyper::StatusCode::UNAUTHORIZED;
            assert_eq!(closed, info.needs != Needs::Nothing, "nobody at {} {}", info.method, info.path);
        }
        cluster.stop().await;
    }
}

#[tokio::test]
async fn garbage_is_answered_in_the_protocols_own_words_and_disturbs_nobody() {
    for seed in [1, 2, 3] {
        throw(seed, 600).await;
    }
}

#[tokio::test]
#[ignore = "minutes: `cargo xtask fuzz`, after a change of the protocol"]
async fn much_more_garbage() {
    for seed in 100..160 {
        throw(seed, 5000).await;
    }
}
