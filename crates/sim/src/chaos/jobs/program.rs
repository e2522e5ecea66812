//! The program that a job is.
//!
//! It writes down for itself what the product will be judged by: one short line for its start, one every [`BEAT`] while it
//! lives, one for its end, each by a single append to a file of the machine it runs on.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::BEAT;
use super::output::{Stream, line};
use crate::chaos::boot_millis;

/// A daemon that nobody stops ends by itself after this long, in milliseconds; the run is over by then, and it was found.
const DAEMON_LIFE: u64 = 20 * 60 * 1000;

/// What a job's command line asks of it.
#[derive(Debug, Default)]
struct Work {
    marks: PathBuf,
    works_for: u64,
    exit: u8,
    lines: u64,
    leaves_a_daemon: bool,
    is_daemon: bool,
}

/// Who a job is: what its launcher told it.
struct Identity {
    run: String,
    attempt: u64,
    fence: u64,
    worker: String,
}

/// The lines that one process appends.
struct Marks {
    file: File,
    who: String,
}

impl Marks {
    fn open(directory: &Path, who: &Identity) -> Result<Self> {
        let path = directory.join(&who.worker);
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { file, who: format!("{} {} {}", who.run, who.attempt, std::process::id()) })
    }

    /// One line in one write: it is there whole, or not at all.
    fn write(&mut self, what: &str, number: u64) -> Result<()> {
        let line = format!("{what} {} {} {number}\n", self.who, boot_millis());
        Ok(self.file.write_all(line.as_bytes())?)
    }
}

/// The program of a job: does what its arguments say and ends with its code.
pub(crate) fn run(arguments: &[String], variable: impl Fn(&str) -> Option<String>) -> Result<u8> {
    let work = parse(arguments)?;
    let text = |name: &str| variable(name).with_context(|| format!("{name} is not set"));
    let who = Identity {
        run: text("LEASEHOLD_RUN_ID")?,
        attempt: text("LEASEHOLD_ATTEMPT")?.parse()?,
        fence: text("LEASEHOLD_FENCE")?.parse()?,
        worker: text("LEASEHOLD_WORKER")?,
    };
    let mut marks = Marks::open(&work.marks, &who)?;
    if work.is_daemon {
        let begin = boot_millis();
        while boot_millis() - begin < DAEMON_LIFE {
            marks.write("daemon", 0)?;
            pause(BEAT);
        }
        return Ok(0);
    }
    marks.write("start", who.fence)?;
    if work.leaves_a_daemon {
        start_daemon(&work.marks)?;
    }
    let begin = boot_millis();
    let mut printed = 0;
    loop {
        let elapsed = boot_millis() - begin;
        let due = if elapsed >= work.works_for { work.lines } else { work.lines * elapsed / work.works_for };
        for number in printed..due {
            print(Stream::of_line(number), &line(&who.run, who.attempt, number))?;
        }
        printed = due;
        marks.write("beat", printed)?;
        if elapsed >= work.works_for {
            break;
        }
        pause(BEAT.min(work.works_for - elapsed));
    }
    marks.write("end", work.exit.into())?;
    Ok(work.exit)
}

fn parse(arguments: &[String]) -> Result<Work> {
    let mut work = Work::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--marks" => work.marks = PathBuf::from(value()?),
            "--for" => work.works_for = value()?.parse()?,
            "--exit" => work.exit = value()?.parse()?,
            "--lines" => work.lines = value()?.parse()?,
            "--daemon" => work.leaves_a_daemon = true,
            "--be-the-daemon" => work.is_daemon = true,
            _ => bail!("a job knows no {word}"),
        }
    }
    Ok(work)
}

/// Forks twice and leaves the session, as daemons do, and keeps the output open.
fn start_daemon(marks: &Path) -> Result<()> {
    let program = std::env::current_exe()?;
    let mut command = Command::new("setsid");
    command.arg("--fork").arg(program).args(["job", "--be-the-daemon", "--marks"]).arg(marks);
    let status = command.stdin(Stdio::null()).status().context("cannot start setsid")?;
    if status.success() { Ok(()) } else { bail!("setsid ended with {status}") }
}

fn print(stream: Stream, bytes: &[u8]) -> Result<()> {
    match stream {
        Stream::Stdout => {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()?;
        }
        Stream::Stderr => std::io::stderr().lock().write_all(bytes)?,
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a job that works for a while; nobody waits for a fact here")]
fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_writes_its_life_down_and_prints_its_pattern() {
        let directory = tempfile::tempdir().unwrap();
        let arguments: Vec<String> =
            ["--marks", directory.path().to_str().unwrap(), "--for", "0", "--exit", "3"].map(str::to_owned).to_vec();
        let code = run(&arguments, |name| {
            let value = match name {
                "LEASEHOLD_RUN_ID" => "r",
                "LEASEHOLD_WORKER" => "near",
                _ => "2",
            };
            Some(value.to_owned())
        });
        assert_eq!(code.unwrap(), 3);
        let written = std::fs::read_to_string(directory.path().join("near")).unwrap();
        let words: Vec<&str> = written.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(words, ["start", "beat", "end"], "{written}");
    }
}
