//! The one timer, on the boot-time clock: it counts suspend, as the deadlines do.

use std::os::fd::OwnedFd;

use leasehold_core::time::BootInstant;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use super::readiness::register;

pub(super) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    pub(super) fn new() -> std::io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(register(timerfd_create(TimerfdClockId::Boottime, flags)?)?))
    }

    /// Fires once at `at`; at once if that has passed.
    pub(super) fn set(&self, at: BootInstant) -> std::io::Result<()> {
        let millis = at.get().max(1);
        let value = Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }

    /// Waits until it fires.
    pub(super) async fn fired(&self) -> std::io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut count = [0; 8];
            match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut count)?)) {
                Ok(read) => return read.map(drop),
                Err(_would_block) => {}
            }
        }
    }
}
