//! The agent's side of the socket in its state directory: a person's questions in, the agent's word out.
//!
//! Only our own user, or root, is heard; a peer that says nothing is left after a while, and at most a handful are heard
//! at once. Never here: a decision. (Worker design; [`crate::status`].)

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::fault::around;
use crate::fault::steps::{STATUS_LISTEN, file};
use crate::pause::Pause;
use crate::state::StateFile;
use crate::state_dir::StateDir;
use crate::status::question::{QUESTION_BYTES, SOCKET, read_question};
use crate::status::{Agent, Answer, Question};

/// Peers that are heard at once at most.
const PEERS: usize = 16;
/// How long a peer may take to ask.
const TO_ASK: Duration = Duration::from_secs(5);
/// How long a peer may take to read a line.
const TO_READ: Duration = Duration::from_secs(10);

/// A question that the driver answers from its engine.
pub(super) enum Asked {
    /// What does it do?
    Status(oneshot::Sender<Agent>),
    /// A drain by a person here, or its end; durable already.
    DrainedHere(bool, oneshot::Sender<Agent>),
    /// Tell whenever the number of open attempts changes.
    Follow(mpsc::Sender<Agent>),
}

/// Peers that are told whenever the number of open attempts changes.
#[derive(Default)]
pub(super) struct Followers {
    told: Option<usize>,
    peers: Vec<mpsc::Sender<Agent>>,
}

impl Followers {
    /// The first word at once. One with nothing to wait for is told so and done.
    pub(super) fn add(&mut self, peer: mpsc::Sender<Agent>, agent: Agent) {
        self.told = Some(agent.open);
        let over = is_over(&agent);
        if peer.try_send(agent).is_ok() && !over {
            self.peers.push(peer);
        }
    }

    /// A change, to everybody; whoever does not read loses its place.
    pub(super) fn tell(&mut self, open: usize, agent: impl FnOnce() -> Agent) {
        if self.peers.is_empty() || self.told == Some(open) {
            return;
        }
        self.told = Some(open);
        let agent = agent();
        let over = is_over(&agent);
        self.peers.retain(|peer| peer.try_send(agent.clone()).is_ok() && !over);
    }
}

/// Nothing is open, or more will come: there is nothing to wait for.
fn is_over(agent: &Agent) -> bool {
    agent.open == 0 || !(agent.drained_here || agent.drained_by_operator || agent.leaving)
}

/// Listens. The caller holds the state directory's lock: a socket that is there is a dead agent's.
pub(super) fn listen(state: &Arc<StateDir>) -> std::io::Result<mpsc::Receiver<Asked>> {
    let path = format!("/proc/self/fd/{}/{SOCKET}", state.dir().fd().as_raw_fd());
    state.dir().remove::<file::AgentSocket>(SOCKET).map_err(std::io::Error::other)?;
    let listener = around(STATUS_LISTEN, || UnixListener::bind(&path))?;
    let (ask, asked) = mpsc::channel(PEERS);
    tokio::spawn(accept(listener, Arc::clone(state), ask));
    Ok(asked)
}

async fn accept(listener: UnixListener, state: Arc<StateDir>, ask: mpsc::Sender<Asked>) {
    let places = Arc::new(Semaphore::new(PEERS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: others end and give theirs back.
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let own = rustix::process::geteuid().as_raw();
        if !stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0) {
            tracing::warn!("somebody else's question to the agent is not heard");
            continue;
        }
        let (state, ask) = (Arc::clone(&state), ask.clone());
        tokio::spawn(async move {
            if let Err(error) = serve(stream, &state, &ask).await {
                tracing::debug!("a question to the agent was not answered: {error}");
            }
            drop(place);
        });
    }
}

async fn serve(mut stream: UnixStream, state: &Arc<StateDir>, ask: &mpsc::Sender<Asked>) -> std::io::Result<()> {
    let (reading, mut writing) = stream.split();
    let mut line = String::new();
    let mut reader = BufReader::new(reading.take(QUESTION_BYTES));
    tokio::time::timeout(TO_ASK, reader.read_line(&mut line)).await??;
    let Some(question) = read_question(&line) else {
        let why = "this version does not know that question: use the `leasehold-worker` that runs here".to_owned();
        return say(&mut writing, &Answer::Error(why)).await;
    };
    match question {
        Question::Status => {
            let (answer, answered) = oneshot::channel();
            // Where the agent leaves, the answer is dropped with the question, and the peer is told so.
            let _ = ask.send(Asked::Status(answer)).await;
            tell(&mut writing, answered.await).await
        }
        Question::Drain | Question::Resume => {
            let on = question == Question::Drain;
            // State before side effect: after a crash at any point the next start knows.
            let state = Arc::clone(state);
            let written = tokio::task::spawn_blocking(move || Pause { on }.write(state.dir())).await?;
            if let Err(error) = written {
                return say(&mut writing, &Answer::Error(format!("it cannot be remembered: {error}"))).await;
            }
            let (answer, answered) = oneshot::channel();
            // Durable already: an agent that leaves says so, and its next start obeys.
            let _ = ask.send(Asked::DrainedHere(on, answer)).await;
            tell(&mut writing, answered.await).await
        }
        Question::Follow => {
            let (change, mut changes) = mpsc::channel(PEERS);
            // Where the agent leaves, the changes end at once.
            let _ = ask.send(Asked::Follow(change)).await;
            while let Some(agent) = changes.recv().await {
                say(&mut writing, &Answer::Agent(Box::new(agent))).await?;
            }
            Ok(())
        }
    }
}

type Writing<'a> = tokio::net::unix::WriteHalf<'a>;

async fn tell(writing: &mut Writing<'_>, agent: Result<Agent, oneshot::error::RecvError>) -> std::io::Result<()> {
    match agent {
        Ok(agent) => say(writing, &Answer::Agent(Box::new(agent))).await,
        Err(_) => say(writing, &Answer::Error("it is leaving".to_owned())).await,
    }
}

async fn say(writing: &mut Writing<'_>, answer: &Answer) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    tokio::time::timeout(TO_READ, writing.write_all(&line)).await?
}
