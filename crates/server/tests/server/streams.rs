//! Streams: a run's output and events, live, resumed, and ended.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use leasehold_core::frame::{Cut, CutReason, Stream, encode_cut, encode_output};
use leasehold_core::id::RunId;
use leasehold_core::time::UtcMillis;
use leasehold_wire::api::event::{Event, EventsEnd};
use leasehold_wire::api::log::{LogEvent, OutputStream};
use leasehold_wire::api::page::Page;
use leasehold_wire::api::problem::ProblemCode;
use leasehold_wire::api::route;

use crate::fixture::{Cluster, PATIENCE, get};

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    id: String,
    name: String,
    data: String,
}

/// Reads server-sent events as they arrive.
struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    fn of(response: Response<Incoming>) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next event; none at the end of the stream.
    async fn next(&mut self) -> Option<Sent> {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
                };
                let sent = Sent { id: field("id"), name: field("event"), data: field("data") };
                if !sent.name.is_empty() {
                    return Some(sent);
                }
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("no event");
            let Some(Ok(frame)) = frame else { return None };
            self.text.push_str(std::str::from_utf8(frame.data_ref()?).unwrap());
        }
    }

    async fn rest(&mut self) -> Vec<Sent> {
        let mut rest = Vec::new();
        while let Some(sent) = self.next().await {
            rest.push(sent);
        }
        rest
    }
}

fn log_path(run: RunId, query: &str) -> String {
    format!("{}?{query}", route::of_run(route::RUN_LOG, &run.to_string()))
}

fn parsed(sent: &Sent) -> LogEvent {
    LogEvent::parse(&sent.name, &sent.data).unwrap().expect("a known event")
}

/// What the events carry, stream by stream.
fn output(events: &[Sent]) -> Vec<(OutputStream, Vec<u8>)> {
    let outputs = events.iter().filter_map(|sent| match parsed(sent) {
        LogEvent::Output(output) => Some((output.stream, output.into_bytes().unwrap())),
        _ => None,
    });
    outputs.collect()
}

/// Lines of both streams, bytes that are no text, and a cut.
fn frames() -> Vec<Vec<u8>> {
    let at = UtcMillis::new(1_800_000_000_000);
    let mut frames = Vec::new();
    for (stream, bytes) in [
        (Stream::Stdout, &b"one\n"[..]),
        (Stream::Stderr, b"two\n\r\n\n"),
        (Stream::Stdout, b"\xff\x00\xfe"),
        (Stream::Stdout, "drei – 三\n".as_bytes()),
    ] {
        let mut frame = Vec::new();
        encode_output(&mut frame, at, stream, bytes);
        frames.push(frame);
    }
    let mut cut = Vec::new();
    encode_cut(&mut cut, at, Cut { reason: CutReason::Quota, stdout: 7, stderr: 0 });
    frames.push(cut);
    frames
}

#[tokio::test]
async fn output_is_followed_live_and_exactly_to_the_runs_end() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    let run = cluster.submit(&["true"]).await;
    // Followed from before anything started.
    let mut events = Events::of(cluster.stream(get(&log_path(run, "follow=true"))).await);
    assert!(matches!(parsed(&events.next().await.unwrap()), LogEvent::Attempt(begins) if begins.number == 1));
    let taken = machine.run().await;
    let log = frames().concat();
    // The first piece ends inside a frame: what is whole is shown at once, the rest when it has come.
    let split = frames()[0].len() + 5;
    machine.log(&taken, 0, &log[..split]).await.unwrap();
    let first = events.next().await.unwrap();
    assert_eq!(output(std::slice::from_ref(&first)), [(OutputStream::Stdout, b"one\n".to_vec())]);
    assert_eq!(first.id, format!("1:{}", frames()[0].len()));
    machine.log(&taken, split as u64, &log[split..]).await.unwrap();
    machine.exited(&taken, 3, &log).await.unwrap();
    let rest = events.rest().await;
    assert_eq!(
        output(&rest),
        [
            (OutputStream::Stderr, b"two\n\r\n\n".to_vec()),
            (OutputStream::Stdout, b"\xff\x00\xfe".to_vec()),
            (OutputStream::Stdout, "drei – 三\n".as_bytes().to_vec()),
        ]
    );
    assert!(matches!(parsed(&rest[rest.len() - 2]), LogEvent::Cut(cut) if cut.reason == "quota" && cut.stdout == 7));
    let LogEvent::End(end) = parsed(rest.last().unwrap()) else { panic!("{rest:?}") };
    assert_eq!(end.run_state.as_str(), "failed");
    assert_eq!(end.outcome.unwrap().exit_code, Some(3));
    assert_eq!(rest.last().unwrap().id, format!("1:{}", log.len()));
    cluster.stop().await;
}

#[tokio::test]
async fn a_reader_that_comes_back_with_any_id_misses_and_repeats_nothing() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    let run = cluster.submit(&["true"]).await;
    let taken = machine.run().await;
    let log = frames().concat();
    machine.log(&taken, 0, &log).await.unwrap();
    machine.exited(&taken, 0, &log).await.unwrap();
    let whole = Events::of(cluster.stream(get(&log_path(run, "follow=true"))).await).rest().await;
    assert_eq!(whole.len(), 1 + frames().len() + 1);
    for (index, seen) in whole.iter().enumerate() {
        for follow in ["follow=true", "follow=false"] {
            let mut request = get(&log_path(run, follow));
            request.headers_mut().insert("last-event-id", seen.id.parse().unwrap());
            let rest = Events::of(cluster.stream(request).await).rest().await;
            // Every stream says first whose output it carries.
            let at_end = index + 1 == whole.len();
            let expected = &whole[if at_end { index } else { index + 1 }..];
            assert_eq!(rest[0].name, "attempt");
            assert_eq!(&rest[1..], expected, "after {} ({follow})", seen.id);
        }
    }
    for bad in ["1", "x:1", "1:1", "1:999999", "7:0"] {
        let mut request = get(&log_path(run, "follow=true"));
        request.headers_mut().insert("last-event-id", bad.parse().unwrap());
        let problem = cluster.api(Some(&cluster.token), request).await.problem();
        let expected = if bad == "7:0" { ProblemCode::NotFound } else { ProblemCode::InvalidRequest };
        assert_eq!(problem.code, expected, "{bad}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_log_is_downloaded_as_the_process_wrote_it() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    let run = cluster.submit(&["true"]).await;
    let taken = machine.run().await;
    let log = frames().concat();
    machine.log(&taken, 0, &log).await.unwrap();
    let token = Some(cluster.token.as_str());
    for (query, expected) in [
        ("format=raw&stream=stdout", "one\n\u{0}drei – 三\n"),
        ("format=raw&stream=stderr", "two\n\r\n\n"),
        ("format=raw&attempt=1", "one\ntwo\n\r\n\n\u{0}drei – 三\n"),
    ] {
        let answer = cluster.api(token, get(&log_path(run, query))).await;
        assert_eq!(answer.headers["content-type"], "application/octet-stream");
        let bytes: Vec<u8> = answer.body.iter().copied().filter(|byte| !matches!(byte, 0xff | 0xfe)).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), expected, "{query}");
    }
    for query in ["format=raw&follow=1", "format=zip", "format=raw&stream=both", "stream=stdout", "folow=1"] {
        let problem = cluster.api(token, get(&log_path(run, query))).await.problem();
        assert_eq!(problem.status, 400, "{query}");
    }
    let missing = cluster.api(token, get(&log_path(run, "format=raw&attempt=2"))).await;
    assert_eq!(missing.problem().code, ProblemCode::NotFound);
    cluster.stop().await;
}

#[tokio::test]
async fn the_story_of_a_run_is_paged_watched_and_resumed() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    let run = cluster.submit(&["true"]).await;
    let path = route::of_run(route::RUN_EVENTS, &run.to_string());
    let mut watch = Events::of(cluster.stream(get(&format!("{path}?follow=1"))).await);
    let admitted = watch.next().await.unwrap();
    assert_eq!((admitted.id.as_str(), admitted.name.as_str()), ("1", "event"));
    let taken = machine.run().await;
    machine.exited(&taken, 0, b"").await.unwrap();
    let rest = watch.rest().await;
    let end: EventsEnd = serde_json::from_str(&rest.last().unwrap().data).unwrap();
    assert_eq!((rest.last().unwrap().name.as_str(), end.run_state.as_str()), ("end", "succeeded"));
    let kinds: Vec<String> =
        rest[..rest.len() - 1].iter().map(|sent| serde_json::from_str::<Event>(&sent.data).unwrap().kind).collect();
    assert_eq!(kinds, ["attempt.claimed", "attempt.starting", "attempt.running", "attempt.ended", "run.ended"]);

    let mut request = get(&format!("{path}?follow=1"));
    request.headers_mut().insert("last-event-id", "4".parse().unwrap());
    let resumed = Events::of(cluster.stream(request).await).rest().await;
    assert_eq!(resumed, rest[3..]);

    let page: Page<Event> = cluster.api(Some(&cluster.token), get(&format!("{path}?after=1&limit=2"))).await.json();
    assert_eq!(page.items.iter().map(|event| event.sequence).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(page.next.as_deref(), Some("3"));
    cluster.stop().await;
}

#[tokio::test]
async fn a_drain_ends_streams_without_their_end() {
    let cluster = Cluster::start().await;
    let run = cluster.submit(&["true"]).await;
    let mut log = Events::of(cluster.stream(get(&log_path(run, "follow=1"))).await);
    let events = format!("{}?follow=1", route::of_run(route::RUN_EVENTS, &run.to_string()));
    let mut watch = Events::of(cluster.stream(get(&events)).await);
    assert_eq!(log.next().await.unwrap().name, "attempt");
    assert_eq!(watch.next().await.unwrap().name, "event");
    cluster.stop().await;
    assert_eq!(log.rest().await, [], "its reader knows that it broke, and comes back");
    assert_eq!(watch.rest().await, []);
}
