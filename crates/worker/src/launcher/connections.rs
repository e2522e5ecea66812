//! The agents that are connected to a launcher: one, or two for a moment while a restarted one re-attaches.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::control::{MESSAGE_BYTES, Message};
use super::socket;
use crate::fault::around;
use crate::fault::steps::CONTROL_TELL;

/// Connections at a time; the oldest gives way, so that a frozen agent cannot keep its successor out.
const AT_MOST: usize = 4;

/// Open connections, each at an index that stays until [`Connections::forget_closed`].
#[derive(Default)]
pub(super) struct Connections {
    sockets: Vec<Option<OwnedFd>>,
}

/// What came over a connection.
pub(super) enum Received {
    /// Nothing to act on.
    Nothing,
    /// A message.
    Message(Message),
}

impl Connections {
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &OwnedFd)> {
        self.sockets.iter().enumerate().filter_map(|(index, socket)| Some((index, socket.as_ref()?)))
    }

    /// Takes who waits, and tells each the state.
    pub(super) fn accept(&mut self, listener: &OwnedFd, state: &[u8]) {
        while let Ok(Some(socket)) = socket::accept(listener.as_fd()) {
            if self.sockets.len() >= AT_MOST {
                self.sockets.remove(0);
            }
            self.sockets.push(Some(socket));
            self.tell(self.sockets.len() - 1, state);
        }
    }

    /// Receives from one; closes it on a hang-up and on what is no message (another version's agent reads the
    /// receipt when it is there).
    pub(super) fn receive(&mut self, index: usize) -> Received {
        let Some(Some(socket)) = self.sockets.get(index) else { return Received::Nothing };
        let mut buffer = [0; MESSAGE_BYTES];
        match socket::receive(socket.as_fd(), &mut buffer) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Received::Nothing;
            }
            Ok(length) if length > 0 => {
                if let Ok(message) = serde_json::from_slice(&buffer[..length]) {
                    return Received::Message(message);
                }
            }
            _ => {}
        }
        self.close(index);
        Received::Nothing
    }

    /// Sends the state to one. An agent that does not read misses a state, never the end: that is the hang-up.
    pub(super) fn tell(&self, index: usize, state: &[u8]) {
        if let Some(Some(socket)) = self.sockets.get(index) {
            let _ = around(CONTROL_TELL, || socket::send(socket.as_fd(), state));
        }
    }

    pub(super) fn tell_all(&self, state: &[u8]) {
        for index in 0..self.sockets.len() {
            self.tell(index, state);
        }
    }

    pub(super) fn close(&mut self, index: usize) {
        if let Some(socket) = self.sockets.get_mut(index) {
            *socket = None;
        }
    }

    pub(super) fn forget_closed(&mut self) {
        self.sockets.retain(Option::is_some);
    }
}
