//! Asking a program of this machine a question, in bounded time and never through a shell.
//!
//! What it started is ended with it, and what it says beyond the bound is not read: a probe is somebody else's program.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use leasehold_core::time::Millis;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::fault::steps::RUNTIME_SPAWN;
use crate::start;

/// What is read of an answer at most.
const OUTPUT: usize = 16 * 1024;
/// In how many pieces it may come.
const PIECES: usize = 64;

/// Where a program says what it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// Its standard output.
    Out,
    /// Its standard error.
    Err,
}

/// How much of an answer is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The first line that says something; a program that prints on is not waited for.
    Line,
    /// All that it says.
    End,
}

/// A question to a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) arguments: &'a [&'a str],
    pub(super) stream: Stream,
    pub(super) until: Until,
}

/// A program in a search path.
pub(super) fn find(program: &str, path: &str) -> Option<PathBuf> {
    path.split(':')
        .filter(|dir| dir.starts_with('/'))
        .map(|dir| Path::new(dir).join(program))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file())
}

/// What a program answers, unless a piece of that takes longer than `patience`; none where it says nothing.
pub(super) fn ask(program: &Path, question: Question<'_>, path: &str, patience: Millis) -> Option<String> {
    let mut command = Command::new(program);
    command.args(question.arguments).env_clear().env("PATH", path).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match question.stream {
        Stream::Out => command.stdout(Stdio::piped()),
        Stream::Err => command.stderr(Stdio::piped()),
    };
    let mut child = start::spawn(RUNTIME_SPAWN, &mut command).ok()?;
    let said = match question.stream {
        Stream::Out => child.stdout.take().map(|said| read(said, question.until, patience)),
        Stream::Err => child.stderr.take().map(|said| read(said, question.until, patience)),
    };
    end(&mut child);
    said.flatten()
}

/// Reads an answer; none where it is not complete in time.
fn read(mut said: impl Read + AsFd, until: Until, patience: Millis) -> Option<String> {
    let timeout = rustix::time::Timespec {
        tv_sec: i64::try_from(patience.get() / 1000).ok()?,
        tv_nsec: i64::try_from(patience.get() % 1000 * 1_000_000).ok()?,
    };
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    for _ in 0..PIECES {
        if poll(&mut [PollFd::new(&said, PollFlags::IN)], Some(&timeout)).unwrap_or(0) == 0 {
            return None;
        }
        let length = said.read(&mut buffer).ok()?;
        text.extend_from_slice(&buffer[..length]);
        if length == 0 || text.len() >= OUTPUT || until == Until::Line && has_line(&text) {
            return (!text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned());
        }
    }
    None
}

/// Whether a whole line is there that is not empty: some programs begin with an empty one.
fn has_line(text: &[u8]) -> bool {
    text.split_inclusive(|byte| *byte == b'\n').any(|line| line.ends_with(b"\n") && !line.trim_ascii().is_empty())
}

/// Ends a program with what it started; until it is waited for, the number of its group is no other's.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use leasehold_core::time::Clock;

    use super::*;
    use crate::launcher::environment::DEFAULT_PATH;
    use crate::machine::MachineClock;

    const LONG: Millis = Millis::from_secs(10);

    fn shell(script: &str, stream: Stream, until: Until, patience: Millis) -> Option<String> {
        let sh = find("sh", DEFAULT_PATH).unwrap();
        ask(&sh, Question { arguments: &["-c", script], stream, until }, DEFAULT_PATH, patience)
    }

    #[test]
    fn a_program_that_does_not_answer_is_not_waited_for() {
        let before = MachineClock.boot();
        assert_eq!(shell("exec sleep 60", Stream::Out, Until::Line, Millis::new(50)), None);
        assert_eq!(shell("echo a; exec sleep 60", Stream::Out, Until::End, Millis::new(50)), None, "half an answer");
        assert!(MachineClock.boot().since(before) < Millis::from_secs(30));
    }

    #[test]
    fn a_first_line_may_come_in_pieces_and_after_an_empty_one() {
        let script = "printf '\\nPython '; sleep 0.1; echo 3.11.7; exec sleep 60";
        let text = shell(script, Stream::Out, Until::Line, LONG);
        assert_eq!(text.as_deref(), Some("\nPython 3.11.7\n"));
    }

    #[test]
    fn each_stream_is_read_by_itself_and_whole_where_that_is_asked() {
        let script = "echo out; echo err >&2; echo more";
        assert_eq!(shell(script, Stream::Out, Until::End, LONG).as_deref(), Some("out\nmore\n"));
        assert_eq!(shell(script, Stream::Err, Until::End, LONG).as_deref(), Some("err\n"));
        assert_eq!(shell("exit 1", Stream::Out, Until::End, LONG), None);
    }

    #[test]
    fn what_a_program_started_ends_with_it() {
        let pid = shell("sleep 300 >/dev/null 2>&1 & echo $!; exec sleep 300", Stream::Out, Until::Line, LONG);
        let pid = Pid::from_raw(pid.unwrap().trim().parse().unwrap()).unwrap();
        let gone = || {
            // An orphan that was killed may wait for its new parent to take note of it.
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        let until = MachineClock.boot().plus(LONG);
        while !gone() {
            assert!(MachineClock.boot() < until, "it lives on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_search_path_is_absolute_and_finds_only_what_can_be_executed() {
        let bin = tempfile::tempdir().unwrap();
        std::fs::write(bin.path().join("java"), "").unwrap();
        assert_eq!(find("java", bin.path().to_str().unwrap()), None);
        assert_eq!(find("sh", "bin:."), None);
    }
}
