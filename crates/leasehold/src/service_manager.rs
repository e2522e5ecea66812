//! What `serve` tells the service manager that started it, and whether that keeps what it writes.
//!
//! Where there is no manager, nothing is said. (`systemd.service(5)`, `systemd.exec(5)`: `JOURNAL_STREAM`.)

use std::ffi::OsString;

use sd_notify::NotifyState;

/// Everything listens: whoever waits for this service may connect.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("answering")]);
}

/// It drains.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing what is being answered")]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// Whether stderr goes into the journal, which is kept and which others may read: no place for a token.
pub(crate) fn keeps_stderr() -> bool {
    let stderr = rustix::fs::fstat(std::io::stderr()).ok().map(|stat| (stat.st_dev, stat.st_ino));
    journal_stream().is_some_and(|text| stderr.is_some() && of_stream(&text) == stderr)
}

#[expect(clippy::disallowed_methods, reason = "a binary reads its own environment")]
fn journal_stream() -> Option<OsString> {
    std::env::var_os("JOURNAL_STREAM")
}

/// Device and inode, as `device:inode`.
fn of_stream(text: &OsString) -> Option<(u64, u64)> {
    let (device, inode) = text.to_str()?.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_named_by_device_and_inode() {
        assert_eq!(of_stream(&OsString::from("8:12345")), Some((8, 12345)));
        for text in ["", "8", "8:", "8:x", ":1"] {
            assert_eq!(of_stream(&OsString::from(text)), None, "{text}");
        }
    }
}
