//! Says when a log has grown: the kernel tells, nothing is polled, so a silent job costs no wake-up.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::id::OfferId;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::readiness::register;
use crate::engine::port::Input;

/// Growth within this is said once: a chatty job is shipped in pieces, not in lines.
const TOGETHER: Duration = Duration::from_millis(25);

/// The watcher's task.
pub(super) struct LogWatch {
    watch: mpsc::Sender<(OfferId, PathBuf)>,
}

impl LogWatch {
    pub(super) fn start(grown: mpsc::Sender<Input>) -> std::io::Result<Self> {
        let notify = register(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?)?;
        let (watch, wanted) = mpsc::channel(256);
        tokio::spawn(follow(notify, wanted, grown));
        Ok(Self { watch })
    }

    /// Where to say which log is to be watched, until its file is removed.
    pub(super) fn handle(&self) -> mpsc::Sender<(OfferId, PathBuf)> {
        self.watch.clone()
    }
}

async fn follow(notify: AsyncFd<OwnedFd>, mut wanted: mpsc::Receiver<(OfferId, PathBuf)>, grown: mpsc::Sender<Input>) {
    let mut watched: HashMap<i32, (OfferId, PathBuf)> = HashMap::new();
    loop {
        tokio::select! {
            more = wanted.recv() => {
                let Some((offer, path)) = more else { return };
                if let Ok(watch) = inotify::add_watch(notify.get_ref(), &path, WatchFlags::MODIFY) {
                    watched.insert(watch, (offer, path.clone()));
                }
                tell(&grown, offer, &path).await;
            }
            ready = notify.readable() => {
                let Ok(mut ready) = ready else { return };
                tokio::time::sleep(TOGETHER).await;
                let mut changed = Vec::new();
                loop {
                    let mut buffer = [MaybeUninit::uninit(); 4096];
                    let mut reader = Reader::new(notify.get_ref(), &mut buffer);
                    let Ok(event) = reader.next() else { break };
                    let mut events = vec![(event.wd(), event.events())];
                    while !reader.is_buffer_empty() {
                        let Ok(event) = reader.next() else { break };
                        events.push((event.wd(), event.events()));
                    }
                    for (watch, flags) in events {
                        if flags.contains(ReadFlags::IGNORED) {
                            watched.remove(&watch);
                        } else if !changed.contains(&watch) {
                            changed.push(watch);
                        }
                    }
                }
                ready.clear_ready();
                for watch in changed {
                    if let Some((offer, path)) = watched.get(&watch) {
                        tell(&grown, *offer, path).await;
                    }
                }
            }
        }
    }
}

async fn tell(grown: &mpsc::Sender<Input>, offer: OfferId, path: &PathBuf) {
    if let Ok(metadata) = std::fs::metadata(path) {
        // Nobody ships it any more where the agent leaves; the next start asks the file.
        let _ = grown.send(Input::LogGrew { offer, length: metadata.len() }).await;
    }
}
