//! The admin socket: the operator API for people on the control plane's own machine, without a token.
//!
//! The file's mode keeps others out; the peer's credentials, which the kernel vouches for, decide: the same user as this
//! process, or root. (Decisions, *Access on one machine*.)

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use super::short_path::ShortPath;
use crate::bind::BindError;

/// The socket, bound; its file goes with it.
pub(crate) struct AdminSocket {
    socket: UnixListener,
    path: PathBuf,
    own_uid: u32,
}

impl AdminSocket {
    /// Binds `path`. A file that a process left behind when it died is replaced; one that answers is not.
    pub(crate) async fn bind(path: &Path) -> Result<Self, BindError> {
        let refused = |error| BindError::of_path(path, error);
        let short = ShortPath::of(path).map_err(refused)?;
        if path.exists() {
            match UnixStream::connect(&short).await {
                Ok(_) => return Err(BindError::AdminSocketInUse { path: path.to_owned() }),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(refused)?;
                }
                Err(error) => return Err(refused(error)),
            }
        }
        let socket = UnixListener::bind(&short).map_err(refused)?;
        // Until this has happened, whoever gets in is still judged by the kernel's word.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(refused)?;
        Ok(Self { socket, path: path.to_owned(), own_uid: rustix::process::geteuid().as_raw() })
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection of a user who may use it; others are closed without a word.
    pub(super) async fn accept(&self) -> io::Result<(UnixStream, u32)> {
        loop {
            let (stream, _) = self.socket.accept().await?;
            match stream.peer_cred() {
                Ok(peer) if may_enter(peer.uid(), self.own_uid) => return Ok((stream, peer.uid())),
                Ok(peer) => tracing::warn!(uid = peer.uid(), "refused at the admin socket"),
                Err(error) => tracing::warn!(%error, "a peer of the admin socket is unknown: refused"),
            }
        }
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the admin socket's file was gone");
        }
    }
}

const fn may_enter(uid: u32, own: u32) -> bool {
    uid == own || uid == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_user_and_root_may_enter() {
        for (uid, own, may) in [(1000, 1000, true), (0, 1000, true), (1001, 1000, false), (1000, 0, false)] {
            assert_eq!(may_enter(uid, own), may, "{uid} at the socket of {own}");
        }
    }
}
