//! Where the control plane is: an admin socket on this machine, or an address with a token.
//!
//! Settings weigh flag > environment > what is found: without an address, `./leasehold-data` (or `--data`) of a running
//! control plane is used through its admin socket, which needs no token. (Decisions, *Access on one machine*.)

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;

/// The directory that `up` and `serve` use when none is named.
pub(crate) const DATA_DIRECTORY: &str = "leasehold-data";

/// The admin socket's name in a data directory.
pub(crate) const ADMIN_SOCKET: &str = "admin.sock";

const DATA_HELP: &str = "The data directory of a control plane on this machine; weighs more than LEASEHOLD_ADDR \
                         [env: LEASEHOLD_DATA, where no address is set] [default: ./leasehold-data]";

/// How to reach a control plane; the same flags on every command that talks to one.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct TargetArgs {
    #[arg(long, env = "LEASEHOLD_ADDR", value_name = "URL")]
    #[arg(help = "The control plane's address, such as https://host:7440")]
    pub addr: Option<String>,

    /// An API token
    #[arg(long, env = "LEASEHOLD_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,

    /// A file that holds an API token
    #[arg(long, env = "LEASEHOLD_TOKEN_FILE", value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,

    /// The CA certificate of the control plane, PEM
    #[arg(long, env = "LEASEHOLD_CACERT", value_name = "FILE")]
    pub cacert: Option<PathBuf>,

    #[arg(long, value_name = "DIR", help = DATA_HELP)]
    pub data: Option<PathBuf>,
}

/// A way to a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The admin socket of a data directory on this machine.
    Socket(PathBuf),
    /// An address.
    Address {
        /// Whether it speaks TLS.
        tls: bool,
        /// The host, as written.
        host: String,
        /// The port.
        port: u16,
        /// The bearer token.
        token: String,
        /// The CA certificate, PEM, for TLS.
        cacert: Option<PathBuf>,
    },
}

impl Target {
    /// What tells `curl` the way to `path` of its API from here.
    pub(crate) fn curl(&self, path: &str) -> String {
        match self {
            Self::Socket(socket) => format!("--unix-socket {} http://localhost{path}", shell_word(socket)),
            Self::Address { tls: true, host, port, cacert, .. } => {
                let cacert = cacert.as_ref().map_or_else(String::new, |file| format!("--cacert {} ", shell_word(file)));
                format!("{cacert}https://{}{path}", authority(host, *port))
            }
            Self::Address { tls: false, host, port, .. } => format!("http://{}{path}", authority(host, *port)),
        }
    }
}

/// A host with its port, as a URL and the `Host` header have them.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A path as one word of a shell's line.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Why no control plane can be reached with these settings.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum TargetError {
    /// Nothing was named and nothing was found.
    #[error(
        "no control plane found: {} is not there. Start one here with `leasehold up`, name its data directory with \
         --data, or set LEASEHOLD_ADDR and LEASEHOLD_TOKEN",
        .0.display()
    )]
    NotFound(PathBuf),
    /// It is another user's.
    #[error(
        "the data directory {} is closed to this user: run this as user {owner}, or set LEASEHOLD_ADDR and LEASEHOLD_TOKEN",
        directory.display()
    )]
    Closed {
        /// Which directory.
        directory: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// The address is not one.
    #[error("`{0}` is not an address: write https://HOST[:PORT], or http://HOST[:PORT] for loopback")]
    Address(String),
    /// An address needs a token.
    #[error("LEASEHOLD_ADDR needs a token: set LEASEHOLD_TOKEN or LEASEHOLD_TOKEN_FILE (or --token, --token-file)")]
    NoToken,
    /// A token file cannot be read.
    #[error("cannot read the token from {}: {reason}", file.display())]
    TokenFile {
        /// Which file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The port of the operator API when an address names none.
pub(crate) const API_PORT: u16 = 7440;

impl TargetArgs {
    /// The data directory these settings name.
    #[expect(clippy::disallowed_methods, reason = "a binary reads its own environment")]
    fn data_directory(&self) -> PathBuf {
        let from_environment =
            || std::env::var_os("LEASEHOLD_DATA").filter(|value| !value.is_empty()).map(PathBuf::from);
        self.data.clone().or_else(from_environment).unwrap_or_else(|| PathBuf::from(DATA_DIRECTORY))
    }

    /// The way to the control plane.
    pub(crate) fn resolve(&self) -> Result<Target, TargetError> {
        // A data directory named on the command line weighs more than an address in the environment.
        match self.addr.as_deref().filter(|addr| !addr.is_empty()) {
            Some(addr) if self.data.is_none() => self.address(addr),
            _ => {
                let directory = self.data_directory();
                let socket = directory.join(ADMIN_SOCKET);
                match (socket.try_exists(), std::fs::metadata(&directory)) {
                    (Ok(true), _) => Ok(Target::Socket(socket)),
                    (Err(error), Ok(found)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                        Err(TargetError::Closed { directory, owner: found.uid() })
                    }
                    _ => Err(TargetError::NotFound(socket)),
                }
            }
        }
    }

    fn address(&self, addr: &str) -> Result<Target, TargetError> {
        let refused = || TargetError::Address(addr.to_owned());
        let (tls, rest) = match addr.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(refused()),
        };
        let rest = rest.trim_end_matches('/');
        let (host, port) = match rest.rsplit_once(':') {
            // A bare IPv6 address ends in `]`.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| refused())?),
            _ => (rest, API_PORT),
        };
        if host.is_empty() || host.contains('/') || host.contains('@') {
            return Err(refused());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let token = self.read_token()?;
        Ok(Target::Address { tls, host, port, token, cacert: self.cacert.clone() })
    }

    fn read_token(&self) -> Result<String, TargetError> {
        if let Some(token) = self.token.as_deref().filter(|token| !token.is_empty()) {
            return Ok(token.trim().to_owned());
        }
        let file: &Path = self.token_file.as_deref().ok_or(TargetError::NoToken)?;
        let text = std::fs::read_to_string(file)
            .map_err(|error| TargetError::TokenFile { file: file.to_owned(), reason: error.to_string() })?;
        Ok(text.trim().to_owned())
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Address { tls, host, port, .. } => {
                write!(f, "{}://{}", if *tls { "https" } else { "http" }, authority(host, *port))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(addr: &str) -> TargetArgs {
        TargetArgs {
            addr: Some(addr.to_owned()),
            token: Some("secret".to_owned()),
            token_file: None,
            cacert: None,
            data: None,
        }
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (addr, told) in [
            ("https://host", "https://host:7440"),
            ("https://host:1/", "https://host:1"),
            ("http://127.0.0.1:80", "http://127.0.0.1:80"),
            ("https://[::1]", "https://[::1]:7440"),
            ("https://[::1]:9", "https://[::1]:9"),
        ] {
            assert_eq!(args(addr).resolve().unwrap().to_string(), told, "{addr}");
        }
        for addr in ["host", "ftp://host", "https://", "https://a/b", "https://h:99999", "https://user@host"] {
            assert_eq!(args(addr).resolve(), Err(TargetError::Address(addr.to_owned())), "{addr}");
        }
    }

    #[test]
    fn a_line_of_curl_reaches_what_was_asked() {
        let socket = Target::Socket("lease hold's/admin.sock".into());
        assert_eq!(socket.curl("/x"), "--unix-socket 'lease hold'\\''s/admin.sock' http://localhost/x");
        let plain = args("http://127.0.0.1").resolve().unwrap();
        assert_eq!(plain.curl("/x"), "http://127.0.0.1:7440/x");
        let own = TargetArgs { cacert: Some("data/ca.pem".into()), ..args("https://[::1]:9") }.resolve().unwrap();
        assert_eq!(own.curl("/x"), "--cacert data/ca.pem https://[::1]:9/x");
        assert_eq!(authority("host", 1), "host:1");
    }

    #[test]
    fn an_address_without_a_token_says_which_variable_to_set() {
        let args = TargetArgs { token: None, ..args("https://host") };
        assert_eq!(args.resolve(), Err(TargetError::NoToken));
    }
}
