//! The wall clock of one machine of a test, which may be stepped while its processes live.
//!
//! `faketime` stands between a process and the C library's answer to *what time is it*. Only the wall clock is touched:
//! the clocks that count since boot, and with them every deadline and every wait, stay as they are.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

/// A wall clock that processes can be started under.
#[derive(Debug, Clone)]
pub struct WallClock {
    offset: PathBuf,
    library: PathBuf,
}

impl WallClock {
    /// A clock that is right until it is stepped. `file` is where its offset stands; it must not exist yet.
    pub fn new(file: PathBuf) -> Result<Self> {
        let clock = Self { offset: file, library: library()? };
        clock.step(0)?;
        Ok(clock)
    }

    /// Puts a command, and whatever it starts, under this clock.
    pub fn rules(&self, command: &mut Command) {
        command.envs(self.variables());
    }

    /// The variables that put a process under this clock.
    pub fn variables(&self) -> [(String, String); 4] {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        [
            ("LD_PRELOAD", text(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", text(&self.offset)),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }

    /// Sets the clock this many seconds ahead of (or, negative, behind) the true time, from now on, for who lives already too.
    pub fn step(&self, seconds: i64) -> Result<()> {
        // Whole or not at all: a process may look at any moment.
        let beside = self.offset.with_extension("new");
        std::fs::write(&beside, format!("{seconds:+}\n"))?;
        rustix::fs::rename(&beside, &self.offset)?;
        Ok(())
    }
}

/// The library of the package `faketime` for programs with threads, wherever this distribution puts it.
fn library() -> Result<PathBuf> {
    let in_here = |directory: PathBuf| {
        ["faketime/libfaketimeMT.so.1", "libfaketimeMT.so.1"]
            .map(|name| directory.join(name))
            .into_iter()
            .find(|path| path.is_file())
    };
    let libraries = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    let of_architectures = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    libraries
        .into_iter()
        .chain(of_architectures)
        .find_map(in_here)
        .context("there is no libfaketimeMT: `cargo xtask environment` installs it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Running, Stream};

    #[test]
    fn a_step_is_seen_by_a_process_that_lives_and_by_no_clock_but_the_wall() {
        let directory = tempfile::tempdir().unwrap();
        let clock = WallClock::new(directory.path().join("offset")).unwrap();
        let look = "import sys, time\n\
            for line in sys.stdin:\n \
            print(int(time.time()), int(time.clock_gettime(time.CLOCK_BOOTTIME)), line.strip(), 'ends', flush=True)";
        let feed = directory.path().join("feed");
        std::process::Command::new("mkfifo").arg(&feed).status().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exec python3 -c \"$0\" <\"$1\"", look]).arg(&feed);
        clock.rules(&mut command);
        let mut running = Running::start(&mut command).unwrap();
        let mut ask = std::fs::OpenOptions::new().write(true).open(&feed).unwrap();
        let mut seen = |word: &str| -> (i64, i64) {
            use std::io::Write as _;
            writeln!(ask, "{word}").unwrap();
            let line = running.wait_for_text(Stream::Stdout, &format!("{word} ends")).unwrap();
            let mut words = line.split(' ').map_while(|word| word.parse::<i64>().ok());
            (words.next().unwrap(), words.next().unwrap())
        };
        let before = seen("before");
        clock.step(10_800).unwrap();
        let after = seen("after");
        clock.step(-10_800).unwrap();
        let back = seen("back");
        let patience = 60;
        assert!((10_800..10_800 + patience).contains(&(after.0 - before.0)), "{before:?} {after:?}");
        assert!((10_800 - patience..=10_800).contains(&(before.0 - back.0)), "{before:?} {back:?}");
        assert!((0..patience).contains(&(back.1 - before.1)), "{before:?} {back:?}");
    }
}
