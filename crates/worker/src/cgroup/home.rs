//! Where the worker may make control groups, and what they can limit.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use leasehold_core::crypto::{Digest, Domain};
use leasehold_core::id::{AttemptId, TrustDomain, WorkerId};
use rustix::fs::{Access, FsWord, access, statfs};

use super::job::JobGroup;
use crate::config::CgroupSetting;

/// The name of the agent's own group where its service manager gives it one: what its parent hands down is ours.
/// (`DelegateSubgroup=` of systemd.)
pub const AGENT: &str = "agent";

/// What `statfs` says of a cgroup2 file system.
const CGROUP2: FsWord = 0x6367_7270;

/// Controllers that limits need, with the feature that each makes.
const CONTROLLERS: [(&str, &str); 3] = [("memory", "cgroup-memory"), ("cpu", "cgroup-cpu"), ("pids", "cgroup-pids")];

/// The directory for the groups of this worker's attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    directory: PathBuf,
    features: BTreeSet<String>,
}

/// What the kernel says about control groups, as texts: what a test can say, too.
#[derive(Debug, Clone)]
pub struct Machine {
    /// `/proc/self/mountinfo`.
    pub mounts: String,
    /// `/proc/self/cgroup`.
    pub own: String,
}

/// The directory that the configuration names cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cgroup: {directory} cannot be used for control groups: {why}")]
pub struct HomeError {
    directory: String,
    why: String,
}

impl Machine {
    /// Of this process.
    pub fn read() -> io::Result<Self> {
        let read = std::fs::read_to_string;
        Ok(Self { mounts: read("/proc/self/mountinfo")?, own: read("/proc/self/cgroup")? })
    }

    /// The directory of this process's own version 2 group, through whichever mount shows it.
    fn own_directory(&self) -> Option<PathBuf> {
        let own = Path::new(self.own.lines().find_map(|line| line.strip_prefix("0::"))?);
        self.mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            if after.split(' ').next() != Some("cgroup2") {
                return None;
            }
            let mut fields = before.split(' ').skip(3);
            let (root, mount_point) = (unescaped(fields.next()?), unescaped(fields.next()?));
            let below = own.strip_prefix(&root).ok()?;
            Some(Path::new(&mount_point).join(below).components().collect())
        })
    }
}

/// A path as mountinfo writes it: blanks and backslashes are octal.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escape, is)| text.replace(escape, is))
}

impl Home {
    /// What the home of a worker is called: unlike that of any other worker, who may share the directory above it.
    pub fn name(domain: &TrustDomain, worker: &WorkerId) -> String {
        let digest = Digest::of(Domain::Body, domain.as_str().as_bytes()).to_string();
        format!("leasehold-{worker}-{}", digest.get(..8).unwrap_or_default())
    }

    /// The home called `name`: where the configuration says, or where this machine lets us. `None`: switched off, or
    /// nowhere.
    pub fn find(setting: &CgroupSetting, name: &str, machine: &Machine) -> Result<Option<Self>, HomeError> {
        match setting {
            CgroupSetting::Off => Ok(None),
            CgroupSetting::Named(directory) => {
                let refused = |why: String| HomeError { directory: directory.display().to_string(), why };
                Self::in_named(directory, name).map(Some).map_err(|error| refused(error.to_string()))
            }
            CgroupSetting::Auto => {
                let Some(own) = machine.own_directory() else { return Ok(None) };
                let above = own.parent().filter(|_| own.file_name().is_some_and(|name| name == AGENT));
                Ok(above.into_iter().chain([own.as_path()]).find_map(|base| Self::open(base, name).ok()))
            }
        }
    }

    fn in_named(directory: &Path, name: &str) -> io::Result<Self> {
        match std::fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if statfs(directory)?.f_type != CGROUP2 {
            return Err(io::Error::other("it is no directory of a cgroup2 file system"));
        }
        Self::open(directory, name)
    }

    /// The home `name` below `base`, made where it is missing, with every controller that can be handed down to its groups.
    pub fn open(base: &Path, name: &str) -> io::Result<Self> {
        // Whoever may not write here may not move a process across it either.
        access(base.join("cgroup.procs"), Access::WRITE_OK)?;
        let directory = base.join(name);
        match std::fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let mut features = BTreeSet::new();
        if directory.join("cgroup.kill").exists() {
            features.insert("cgroup-kill".to_owned());
        }
        for (controller, feature) in CONTROLLERS {
            // Refused where the parent has processes of its own: then nothing can be limited below it.
            if hands_down(base, controller).is_ok() && hands_down(&directory, controller).is_ok() {
                features.insert(feature.to_owned());
            }
        }
        if features.is_empty() {
            // Its groups could do nothing.
            let _ = std::fs::remove_dir(&directory);
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { directory, features })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it lets the worker do, as its capabilities say it.
    pub fn features(&self) -> &BTreeSet<String> {
        &self.features
    }

    /// The directory of an attempt's group.
    pub fn of(&self, attempt: AttemptId) -> PathBuf {
        self.directory.join(attempt.to_string())
    }

    /// Removes the groups that nothing lives in and nobody will use: those of attempts that `is_ours` denies. Groups of
    /// processes that were kept on purpose go this way when the last of them has ended.
    pub fn sweep(&self, is_ours: impl Fn(AttemptId) -> bool) {
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let attempt = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if attempt.is_some_and(|attempt| !is_ours(attempt)) {
                JobGroup::at(entry.path()).remove();
            }
        }
    }

    /// Removes the home itself, unless a group is left in it.
    pub fn leave(&self) {
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// Hands a controller down to the groups below `directory`, unless that is done.
fn hands_down(directory: &Path, controller: &str) -> io::Result<()> {
    let names = |file: &str| -> io::Result<bool> {
        let text = std::fs::read_to_string(directory.join(file))?;
        Ok(text.split_ascii_whitespace().any(|name| name == controller))
    };
    if names("cgroup.subtree_control")? {
        return Ok(());
    }
    if !names("cgroup.controllers")? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    super::job::write(&directory.join("cgroup.subtree_control"), &format!("+{controller}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "leasehold-nas";

    fn machine(mounts: &str, own: &str) -> Machine {
        Machine { mounts: mounts.to_owned(), own: own.to_owned() }
    }

    /// A directory with the files of a group: a tree that only looks like one.
    fn fake(directory: &Path, controllers: &str, handed_down: &str) {
        std::fs::create_dir_all(directory).unwrap();
        for (file, text) in [
            ("cgroup.procs", ""),
            ("cgroup.kill", ""),
            ("cgroup.controllers", controllers),
            ("cgroup.subtree_control", handed_down),
        ] {
            std::fs::write(directory.join(file), text).unwrap();
        }
    }

    fn features(home: &Home) -> Vec<&str> {
        home.features().iter().map(String::as_str).collect()
    }

    #[test]
    fn two_workers_of_one_name_have_two_homes() {
        let name = |domain: &str| Home::name(&domain.parse().unwrap(), &"nas".parse().unwrap());
        assert!(name("a.example").starts_with("leasehold-nas-"));
        assert_ne!(name("a.example"), name("b.example"));
    }

    #[test]
    fn the_own_group_is_found_through_the_mount_that_shows_it() {
        let hybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      36 31 0:33 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let found = |mounts: &str, own: &str| machine(mounts, own).own_directory();
        assert_eq!(found(hybrid, "9:name=systemd:/\n0::/\n"), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(found(hybrid, "0::/a.slice/b.service\n"), Some("/sys/fs/cgroup/unified/a.slice/b.service".into()));
        assert_eq!(found(hybrid, "1:cpu:/\n"), None, "this process has no version 2 group");
        // A container: the mount shows a part of the hierarchy, under a name with a blank.
        let part = "50 1 0:38 /kube/pod7 /mnt/my\\040groups rw shared:4 - cgroup2 cgroup rw\n";
        assert_eq!(found(part, "0::/kube/pod7/agent\n"), Some("/mnt/my groups/agent".into()));
        assert_eq!(found(part, "0::/elsewhere\n"), None, "the mount does not show it");
        assert_eq!(found("no such line\n", "0::/\n"), None);
    }

    #[test]
    fn the_parent_is_taken_where_the_agent_has_a_group_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        let unit = root.path().join("w.service");
        let mounts = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", root.path().display());
        fake(&unit, "cpuset cpu io memory pids\n", "memory\n");
        fake(&unit.join("agent"), "memory\n", "");
        fake(&unit.join("leasehold-nas"), "cpu memory pids\n", "");
        let find = |own: &str| Home::find(&CgroupSetting::Auto, NAME, &machine(&mounts, own)).unwrap();
        let home = find("0::/w.service/agent\n").unwrap();
        assert_eq!(home.directory(), unit.join("leasehold-nas"));
        assert_eq!(features(&home), ["cgroup-cpu", "cgroup-kill", "cgroup-memory", "cgroup-pids"]);
        let handed_down = std::fs::read_to_string(unit.join("cgroup.subtree_control")).unwrap();
        assert!(!handed_down.contains("memory"), "what is handed down already is not asked for again: {handed_down}");
    }

    #[test]
    fn what_the_parent_does_not_have_is_no_feature() {
        let root = tempfile::tempdir().unwrap();
        fake(root.path(), "hugetlb\n", "");
        fake(&root.path().join("leasehold-nas"), "", "");
        let home = Home::open(root.path(), NAME).unwrap();
        assert_eq!(features(&home), ["cgroup-kill"]);
    }

    #[test]
    fn a_directory_that_is_named_must_be_one_of_control_groups() {
        let somewhere = tempfile::tempdir().unwrap();
        let named = |path: &Path| CgroupSetting::Named(path.to_owned());
        let nowhere = machine("", "");
        let error = Home::find(&named(somewhere.path()), NAME, &nowhere).unwrap_err().to_string();
        assert!(error.contains("no directory of a cgroup2 file system"), "{error}");
        let error = Home::find(&named(&somewhere.path().join("a/b")), NAME, &nowhere).unwrap_err().to_string();
        assert!(error.contains("a/b") && error.contains("No such file"), "{error}");
        assert_eq!(Home::find(&CgroupSetting::Off, NAME, &Machine::read().unwrap()).unwrap(), None);
        assert_eq!(Home::find(&CgroupSetting::Auto, NAME, &nowhere).unwrap(), None);
    }
}
