//! What a person's command may ask a running agent, over the socket in its state directory.
//!
//! One question a connection, one JSON object a line. The directory lets nobody else in; the kernel's word on the peer
//! decides all the same. The socket is reached through the directory's descriptor, whatever the length of its path.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::limits::{KIB, MIB};
use serde::{Deserialize, Serialize};

use super::Agent;
use crate::durable::Dir;

/// The socket's name in the state directory.
pub(crate) const SOCKET: &str = "agent.sock";
/// Most bytes of a question.
pub(crate) const QUESTION_BYTES: u64 = 4 * KIB as u64;
/// Most bytes of one line of an answer.
const ANSWER_BYTES: u64 = 2 * MIB as u64;
/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What do you do?
    Status,
    /// Take nothing new until you are told otherwise.
    Drain,
    /// Take work again.
    Resume,
    /// Tell how many attempts are open whenever that changes, until none is or you take work again.
    Follow,
}

/// A line of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What it does.
    Agent(Box<Agent>),
    /// It could not do what it was told.
    Error(String),
}

/// An agent was not asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens.
    #[error("no agent runs on {0}")]
    NoAgent(String),
    /// Somebody listens and says nothing.
    #[error(
        "an agent runs and did not answer within {} s: it is frozen (see `ps`: state T or D) or its machine is overloaded. \
         Its jobs go on until their leases end. Wake it with SIGCONT, or restart its service: jobs stay",
        .0.as_secs()
    )]
    Silent(Duration),
    /// It said why not.
    #[error("the agent says: {0}")]
    Refused(String),
    /// The conversation broke.
    #[error("the agent does not answer: {0}")]
    Broken(#[from] io::Error),
}

/// What stands on the line of a question.
pub(crate) fn read_question(line: &str) -> Option<Question> {
    serde_json::from_str(line.trim()).ok()
}

/// The path of the socket through an open directory.
fn path(dir: &Dir) -> PathBuf {
    format!("/proc/self/fd/{}/{SOCKET}", dir.fd().as_raw_fd()).into()
}

fn connect(dir: &Dir, question: Question) -> Result<BufReader<io::Take<UnixStream>>, AskError> {
    let mut stream = match UnixStream::connect(path(dir)) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Err(AskError::NoAgent(dir.path().display().to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_string(&question).map_err(io::Error::from)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    Ok(BufReader::new(stream.take(ANSWER_BYTES)))
}

fn next(answers: &mut BufReader<io::Take<UnixStream>>) -> Result<Option<Agent>, AskError> {
    answers.get_mut().set_limit(ANSWER_BYTES);
    let mut line = String::new();
    if answers.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    match serde_json::from_str(&line).map_err(io::Error::from)? {
        Answer::Agent(agent) => Ok(Some(*agent)),
        Answer::Error(why) => Err(AskError::Refused(why)),
    }
}

/// Asks the agent of a state directory.
pub fn ask(dir: &Dir, question: Question) -> Result<Agent, AskError> {
    ask_within(PATIENCE, dir, question)
}

fn ask_within(patience: Duration, dir: &Dir, question: Question) -> Result<Agent, AskError> {
    let mut answers = connect(dir, question)?;
    answers.get_ref().get_ref().set_read_timeout(Some(patience))?;
    match next(&mut answers) {
        Ok(Some(agent)) => Ok(agent),
        Ok(None) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        Err(AskError::Broken(error)) if is_timeout(&error) => Err(AskError::Silent(patience)),
        Err(error) => Err(error),
    }
}

/// What the end of a read's patience looks like.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Follows the agent of a state directory until nothing of it is open, it takes work again, or it goes: each change is
/// told. `within` is how long a change may take; none: as long as it takes. Whether it said so to the end.
pub fn follow(dir: &Dir, within: Option<Duration>, mut tell: impl FnMut(&Agent)) -> Result<bool, AskError> {
    let mut answers = connect(dir, Question::Follow)?;
    answers.get_ref().get_ref().set_read_timeout(within)?;
    let mut last = None;
    loop {
        match next(&mut answers) {
            Ok(Some(agent)) => {
                tell(&agent);
                last = Some(agent);
            }
            Ok(None) => return Ok(last.is_some_and(|agent| agent.open == 0)),
            Err(AskError::Broken(error)) if is_timeout(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_agent_that_says_nothing_is_not_taken_for_none() {
        let parent = tempfile::tempdir().unwrap();
        let dir = Dir::create(&parent.path().join("state")).unwrap();
        let ask = || ask_within(Duration::from_millis(20), &dir, Question::Status);
        assert!(matches!(ask(), Err(AskError::NoAgent(_))));
        // A frozen process: its socket takes connections, since the kernel does.
        let frozen = UnixListener::bind(path(&dir)).unwrap();
        assert!(matches!(ask(), Err(AskError::Silent(_))));
        drop(frozen);
        assert!(matches!(ask(), Err(AskError::NoAgent(_))), "what a killed agent leaves answers nobody");
    }
}
