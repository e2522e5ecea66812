//! A run's output on our own streams: byte for byte, stdout to stdout and stderr to stderr, across broken connections.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use leasehold_wire::api::log::{End, LogEvent, OutputStream};
use leasehold_wire::api::route;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::client::{Client, RequestError};
use crate::log_words;
use crate::output::{OutputArgs, cannot_write};
use crate::waiting::{Reconnect, cut_off};

/// Whose output, and how much of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The run, as typed or as it was submitted.
    pub run: &'a str,
    /// One attempt; otherwise the latest and those that follow it.
    pub attempt: Option<u64>,
    /// Until its end, and not only what is there.
    pub follow: bool,
}

impl Wanted<'_> {
    fn path(&self) -> String {
        let mut path = format!("{}?follow={}", route::of_run(route::RUN_LOG, self.run), self.follow);
        if let Some(attempt) = self.attempt {
            path.extend(["&attempt=", &attempt.to_string()]);
        }
        path
    }
}

/// Copies the output of a run to ours, says what is missing of it, and answers its end.
pub(crate) async fn output(client: &Client, wanted: Wanted<'_>, notes: &OutputArgs) -> anyhow::Result<End> {
    let mut streams = Streams { stdout: Own::Stdout, stderr: Own::Stderr };
    let end = copy(client, wanted, notes, &mut streams).await?;
    if let Some(note) = log_words::note(&end.log) {
        notes.note(&note);
    }
    Ok(end)
}

/// Where output goes.
struct Streams<O, E> {
    stdout: O,
    stderr: E,
}

async fn copy(
    client: &Client,
    wanted: Wanted<'_>,
    notes: &OutputArgs,
    streams: &mut Streams<impl Sink, impl Sink>,
) -> anyhow::Result<End> {
    let mut reconnect = Reconnect::default();
    let mut after = None;
    loop {
        let error = match client.events(&wanted.path(), after.clone()).await {
            Ok(mut stream) => loop {
                match stream.next().await {
                    Ok(Some(event)) => {
                        reconnect.progress();
                        let told = LogEvent::parse(&event.kind, &event.data);
                        let told = told.map_err(|error| client.not_understood(&error))?;
                        if let Some(LogEvent::End(end)) = told {
                            return Ok(end);
                        }
                        if let Some(told) = told {
                            streams.show(client, told, notes).await?;
                        }
                        // Only now is it behind us: what was not written is asked for again.
                        if event.id.is_some() {
                            after = event.id;
                        }
                    }
                    Ok(None) => break cut_off(client),
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        reconnect.after(error, notes).await?;
    }
}

/// Takes bytes of output, so that a reader sees them now, whatever comes later.
trait Sink {
    async fn put(&mut self, bytes: Vec<u8>) -> io::Result<()>;
}

/// A stream of this process. A terminal or pipe that others work with without blocking, and so we do, is waited for.
#[derive(Debug, Clone, Copy)]
enum Own {
    Stdout,
    Stderr,
}

impl Sink for Own {
    async fn put(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        let own = *self;
        let put = move || match own {
            Self::Stdout => write_all(io::stdout().as_fd(), &bytes),
            Self::Stderr => write_all(io::stderr().as_fd(), &bytes),
        };
        tokio::task::spawn_blocking(put).await?
    }
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            },
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

impl<O: Sink, E: Sink> Streams<O, E> {
    async fn show(&mut self, client: &Client, event: LogEvent, notes: &OutputArgs) -> anyhow::Result<()> {
        match event {
            LogEvent::Output(output) => {
                let stream = output.stream;
                let bytes = output.into_bytes().ok_or_else(|| RequestError::Answer {
                    target: client.target().to_string(),
                    reason: "output that is neither text nor base64".to_owned(),
                })?;
                match stream {
                    OutputStream::Stdout => put("stdout", &mut self.stdout, bytes).await?,
                    OutputStream::Stderr => put("stderr", &mut self.stderr, bytes).await?,
                }
            }
            LogEvent::Attempt(attempt) if attempt.number > 1 => {
                notes.note(&format!("attempt {} begins", attempt.number));
            }
            LogEvent::Cut(cut) => {
                let (bytes, why) = (cut.stdout.saturating_add(cut.stderr), log_words::why_cut(&cut.reason));
                notes.note(&format!("{bytes} bytes of output are missing here: {why}"));
            }
            LogEvent::Attempt(_) | LogEvent::End(_) => {}
        }
        Ok(())
    }
}

async fn put(name: &str, to: &mut impl Sink, bytes: Vec<u8>) -> io::Result<()> {
    to.put(bytes).await.map_err(|error| cannot_write(name, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
    use crate::scripted_server::{answer, serve};
    use crate::target::Target;

    impl Sink for Vec<u8> {
        async fn put(&mut self, bytes: Vec<u8>) -> io::Result<()> {
            self.extend(bytes);
            Ok(())
        }
    }

    #[tokio::test]
    async fn each_stream_gets_its_own_bytes() {
        let client = Client::new(Target::Socket("nowhere".into())).unwrap();
        let notes = OutputArgs { output: Format::Table, quiet: true };
        let mut streams = Streams { stdout: Vec::new(), stderr: Vec::new() };
        let at = leasehold_core::time::UtcMillis::new(0).into();
        for (stream, bytes) in [
            (OutputStream::Stdout, b"out \xff\n".to_vec()),
            (OutputStream::Stderr, b"err".to_vec()),
            (OutputStream::Stdout, b"more".to_vec()),
        ] {
            let event = LogEvent::Output(leasehold_wire::api::log::Output::new(stream, at, bytes));
            // As it crosses: through its JSON form.
            let event = LogEvent::parse(event.name(), &event.data()).unwrap().unwrap();
            streams.show(&client, event, &notes).await.unwrap();
        }
        assert_eq!(streams.stdout, b"out \xff\nmore");
        assert_eq!(streams.stderr, b"err");
    }

    #[tokio::test]
    async fn a_broken_connection_loses_and_repeats_nothing() {
        let event = |id: &str, name: &str, data: &str| format!("id: {id}\nevent: {name}\ndata: {data}\n\n");
        let out = |text: &str| format!(r#"{{"stream":"stdout","at":"2026-01-31T03:00:00Z","text":"{text}"}}"#);
        let end = r#"{"run_state":"succeeded","log":{"state":"complete","received":44,"length":44}}"#;
        let cut = event("1:30", "output", &out("two"));
        let script = [
            // The second event is cut off in its middle: it counts as not read.
            event("1:15", "output", &out("one ")) + &cut[..cut.len() / 2],
            event("1:30", "output", &out("two "))
                + &event("1:44", "output", &out("three"))
                + &event("1:44", "end", end),
        ];
        let script = script.iter().map(|body| answer("200 OK", "text/event-stream", body)).collect();
        let directory = tempfile::tempdir().unwrap();
        let (client, served) = serve(directory.path(), script);
        let notes = OutputArgs { output: Format::Table, quiet: true };
        let mut streams = Streams { stdout: Vec::new(), stderr: Vec::new() };
        let wanted = Wanted { run: "0190", attempt: None, follow: true };

        let end = copy(&client, wanted, &notes, &mut streams).await.unwrap();
        assert_eq!(end.run_state, leasehold_core::run::RunState::Succeeded);
        assert_eq!(String::from_utf8(streams.stdout).unwrap(), "one two three");
        let requests = served.await.unwrap();
        assert!(!requests[0].contains("last-event-id"), "{}", requests[0]);
        assert!(requests[1].contains("last-event-id: 1:15\r\n"), "{}", requests[1]);
    }

    #[tokio::test]
    async fn a_run_that_is_not_there_is_no_broken_connection() {
        let problem = serde_json::to_string(&leasehold_wire::api::problem::Problem::new(
            leasehold_wire::api::problem::ProblemCode::NotFound,
            "there is no run `0190`",
        ));
        let script = vec![answer("404 Not Found", "application/problem+json", &problem.unwrap())];
        let directory = tempfile::tempdir().unwrap();
        let (client, _served) = serve(directory.path(), script);
        let notes = OutputArgs { output: Format::Table, quiet: true };
        let wanted = Wanted { run: "0190", attempt: None, follow: true };
        let error = output(&client, wanted, &notes).await.unwrap_err();
        assert_eq!(crate::failure::exit(&error), crate::exit::Exit::NotFound);
        assert_eq!(error.to_string(), "there is no run `0190`");
    }

    #[test]
    fn what_is_asked_for_stands_in_the_path() {
        let wanted = Wanted { run: "0190", attempt: Some(2), follow: true };
        assert_eq!(wanted.path(), "/api/v1/runs/0190/log?follow=true&attempt=2");
    }
}
