//! The runtimes that this version knows how to ask, and how each says its version.
//!
//! A few are asked at once, each for a while of its own, all of them within one: a runtime that hangs costs the others
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use leasehold_core::time::{Clock, Millis};
use leasehold_core::version::Version;

use super::probe::{Question, Stream, Until, ask, find};

/// How long all runtimes together may take to answer.
pub(super) const PATIENCE: Millis = Millis::from_secs(5);
/// How long one of them may.
const PATIENCE_OF_ONE: Millis = Millis::from_secs(3);
/// How many are asked at once: a small machine is not to start a dozen programs together.
const AT_ONCE: usize = 3;

/// A runtime, and how it is asked.
struct Runtime {
    name: &'static str,
    /// Its program: the first of these that is there.
    programs: &'static [&'static str],
    /// None: it is there, and cannot say its version.
    question: Option<Question<'static>>,
}

const fn says(arguments: &'static [&'static str]) -> Question<'static> {
    Question { arguments, stream: Stream::Out, until: Until::Line }
}

/// In the order they are asked; those that are slow to start stand first.
const RUNTIMES: [Runtime; 14] = [
    // POSIX `sh` has no version to ask for: it is never waited for.
    Runtime { name: "sh", programs: &["sh"], question: None },
    // Java 8 knows no other spelling, and all of them answer this one on standard error.
    Runtime {
        name: "java",
        programs: &["java"],
        question: Some(Question { arguments: &["-version"], stream: Stream::Err, until: Until::Line }),
    },
    Runtime { name: "python", programs: &["python3", "python"], question: Some(says(&["--version"])) },
    Runtime { name: "node", programs: &["node", "nodejs"], question: Some(says(&["--version"])) },
    Runtime { name: "deno", programs: &["deno"], question: Some(says(&["--version"])) },
    Runtime { name: "bun", programs: &["bun"], question: Some(says(&["--version"])) },
    // The clients' own versions: no daemon is spoken to.
    Runtime { name: "docker", programs: &["docker"], question: Some(says(&["--version"])) },
    Runtime { name: "podman", programs: &["podman"], question: Some(says(&["--version"])) },
    Runtime { name: "ruby", programs: &["ruby"], question: Some(says(&["--version"])) },
    Runtime { name: "php", programs: &["php"], question: Some(says(&["--version"])) },
    Runtime { name: "go", programs: &["go"], question: Some(says(&["version"])) },
    Runtime { name: "perl", programs: &["perl"], question: Some(says(&["--version"])) },
    Runtime { name: "git", programs: &["git"], question: Some(says(&["--version"])) },
    Runtime { name: "bash", programs: &["bash"], question: Some(says(&["--version"])) },
];

/// The runtimes that answer in time. A program on a file system that hangs cannot be stopped, not even asked for:
/// threads of their own ask, and are left behind where it comes to that.
pub(super) fn runtimes(path: &str, clock: &dyn Clock) -> BTreeMap<String, Version> {
    let until = clock.boot().plus(PATIENCE);
    let (found, answers) = mpsc::channel();
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..AT_ONCE {
        let (found, next, searched) = (found.clone(), Arc::clone(&next), path.to_owned());
        let asking = std::thread::Builder::new().name("detection".to_owned());
        if let Err(error) = asking.spawn(move || ask_in_turn(&next, &searched, &found)) {
            tracing::warn!("the runtimes of this machine are not all asked for: {error}");
        }
    }
    drop(found);
    let mut known = BTreeMap::new();
    loop {
        let left = until.since(clock.boot());
        match answers.recv_timeout(Duration::from_millis(left.get())) {
            Ok((name, version)) => _ = known.insert(name, version),
            Err(RecvTimeoutError::Disconnected) => return known,
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("not every runtime of this machine answered within {PATIENCE}");
                return known;
            }
        }
    }
}

/// Asks one runtime after another that nobody has asked yet.
fn ask_in_turn(next: &AtomicUsize, path: &str, found: &Sender<(String, Version)>) {
    while let Some(runtime) = RUNTIMES.get(next.fetch_add(1, Ordering::Relaxed)) {
        if let Some(version) = version(runtime, path) {
            // Nobody listens any more: the start went on without.
            let _ = found.send((runtime.name.to_owned(), version));
        }
    }
}

/// The version of a runtime that is there: what it says, or [`Version::UNKNOWN`] where it says none.
fn version(runtime: &Runtime, path: &str) -> Option<Version> {
    let program = runtime.programs.iter().find_map(|program| find(program, path))?;
    let Some(question) = runtime.question else { return Some(Version::UNKNOWN) };
    let said = ask(&program, question, path, PATIENCE_OF_ONE);
    if said.is_none() {
        tracing::warn!("{} does not say its version: {} is not offered", program.display(), runtime.name);
    }
    Some(Version::from_printed(&said?).unwrap_or(Version::UNKNOWN))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::executable;
    use super::*;
    use crate::machine::MachineClock;

    /// Puts a program into a directory that is searched.
    fn put(bin: &Path, name: &str, script: &str) {
        executable::write(&bin.join(name), format!("#!/bin/sh\n{script}\n"));
    }

    #[test]
    fn every_runtime_says_its_version_in_its_own_way() {
        let bin = tempfile::tempdir().unwrap();
        // As the programs print them.
        for (program, prints, expected) in [
            ("bash", "echo 'GNU bash, version 5.2.15(1)-release (x86_64-pc-linux-gnu)'", "5.2.15"),
            ("python3", "echo 'Python 3.11.7'", "3.11.7"),
            ("node", "echo v20.20.2", "20.20.2"),
            (
                "deno",
                "echo 'deno 1.46.3 (stable, release, x86_64-unknown-linux-gnu)'; echo 'v8 12.9.202.5-rusty'",
                "1.46.3",
            ),
            ("bun", "echo 1.1.38", "1.1.38"),
            ("go", "test \"$*\" = version && echo 'go version go1.22.1 linux/arm64'", "1.22.1"),
            (
                "java",
                "test \"$*\" = -version && echo 'openjdk version \"1.8.0_392\"' >&2; echo 'OpenJDK Runtime 9.9' >&2",
                "1.8.0.392",
            ),
            ("ruby", "echo 'ruby 3.1.2p20 (2022-04-12 revision 4491bb740a) [x86_64-linux-gnu]'", "3.1.2"),
            ("php", "echo 'PHP 8.2.29 (cli) (built: Jul  3 2025 16:16:05) (NTS)'", "8.2.29"),
            (
                "perl",
                "echo; echo 'This is perl 5, version 36, subversion 0 (v5.36.0) built for x86_64-linux-gnu-thread-multi'",
                "5.36.0",
            ),
            ("git", "echo 'git version 2.39.5'", "2.39.5"),
            ("docker", "echo 'Docker version 24.0.5, build ced0996'", "24.0.5"),
            ("podman", "echo 'podman version 4.3.1'", "4.3.1"),
        ] {
            put(bin.path(), program, prints);
            let name = if program == "python3" { "python" } else { program };
            let runtime = RUNTIMES.iter().find(|runtime| runtime.name == name).unwrap();
            let found = version(runtime, bin.path().to_str().unwrap());
            assert_eq!(found.map(|version| version.to_string()).as_deref(), Some(expected), "{program}");
        }
        std::os::unix::fs::symlink("/bin/sh", bin.path().join("sh")).unwrap();
        let found = runtimes(bin.path().to_str().unwrap(), &MachineClock);
        assert_eq!(found.len(), RUNTIMES.len(), "{found:?}");
        assert_eq!(found["sh"], Version::UNKNOWN, "POSIX sh has no version, and none is invented");
    }

    #[test]
    fn another_name_of_the_program_does_and_who_says_nothing_is_not_there() {
        let bin = tempfile::tempdir().unwrap();
        let path = bin.path().to_str().unwrap();
        put(bin.path(), "python", "echo 'Python 3.13.0rc2'");
        put(bin.path(), "ruby", "exit 1");
        put(bin.path(), "git", "echo 'git, of some kind'");
        let found = runtimes(path, &MachineClock);
        let found: Vec<_> = found.iter().map(|(name, version)| format!("{name} {version}")).collect();
        assert_eq!(found, ["git 0", "python 3.13.0-rc2"]);
    }

    #[test]
    fn runtimes_that_hang_hold_up_neither_the_start_nor_the_others() {
        let bin = tempfile::tempdir().unwrap();
        for name in ["java", "python3"] {
            // Its child outlives it and keeps the output open.
            put(bin.path(), name, "/bin/sleep 60 &\nexec /bin/sleep 60");
        }
        put(bin.path(), "git", "echo 'git version 2.39.5'");
        std::os::unix::fs::symlink("/bin/sh", bin.path().join("sh")).unwrap();
        let before = MachineClock.boot();
        let found = runtimes(bin.path().to_str().unwrap(), &MachineClock);
        let took = MachineClock.boot().since(before);
        assert!(took < PATIENCE.plus(PATIENCE), "all of them have {PATIENCE}, not each: {took}");
        assert_eq!(found.keys().collect::<Vec<_>>(), ["git", "sh"]);
    }

    #[test]
    fn nothing_is_found_where_nothing_is_searched() {
        assert_eq!(runtimes("", &MachineClock), BTreeMap::new());
    }
}
