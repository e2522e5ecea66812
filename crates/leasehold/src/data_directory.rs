//! The data directory of a control plane: its database, its master key, its CA certificate, its admin socket.
//!
//! Only its owner may enter it. The master key is a file of its own, so that a copy of the database alone opens nothing.
//! (Control design, *Security*; decisions, *Access on one machine*.)

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use leasehold_control::room::Volume;
use leasehold_control::seal::MasterKey;
use leasehold_core::crypto::ApiToken;
use leasehold_core::database::{ClusterId, History, Timeline};
use leasehold_core::disk::Space;
use leasehold_core::time::Entropy;
use zeroize::Zeroizing;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    /// It cannot be made or written.
    #[error("the data directory {} cannot be used: {source}. Name one that you may write with --data", path.display())]
    Unusable {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said; part of the sentence, so that it stands before the fix.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is a file, not a directory: name the data directory of a control plane with --data", .0.display())]
    NotADirectory(PathBuf),
    /// It is somebody's directory for other things, and others use it.
    #[error(
        "{} holds other things and is open to other users: a data directory is closed to all but its owner. Name a new or \
         empty directory with --data",
        .0.display()
    )]
    OthersUse(PathBuf),
    /// The master key is not one.
    #[error("{}: {source}. Put the key back that this data was made with", path.display())]
    Key {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: leasehold_control::seal::MasterKeyError,
    },
    /// A database without its key.
    #[error(
        "the master key {} is missing, but the database is there: put the key back that the installation was made with (for \
         a replica: copy master.key from the data directory of the first one, or name the file with --master-key-file)",
        .0.display()
    )]
    KeyGone(PathBuf),
    /// An installation without its database.
    #[error(
        "{} is missing or empty, but an installation was made here: put the database back, or, to begin anew without its \
         workers and runs, choose an empty directory with --data",
        .0.display()
    )]
    DatabaseGone(PathBuf),
    /// What is remembered of the database cannot be read.
    #[error(
        "{} is damaged: it should say which history of the database was seen last. Restore it, or remove it once you know \
         that the database is the current primary",
        .0.display()
    )]
    Seen(PathBuf),
}

impl DataError {
    /// Whether there is no such directory.
    pub(crate) fn is_not_there(&self) -> bool {
        matches!(self, Self::Unusable { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// A data directory that exists and belongs to its owner alone.
#[derive(Debug, Clone)]
pub(crate) struct DataDirectory {
    path: PathBuf,
}

impl DataDirectory {
    /// Makes `path` if it is not there, closes it to others, and proves that it can be written.
    pub(crate) fn prepare(path: &Path) -> Result<Self, DataError> {
        let refused = |source| DataError::Unusable { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(refused)?;
        let path = path.canonicalize().map_err(refused)?;
        let refused = |source| DataError::Unusable { path: path.clone(), source };
        let directory = Self { path: path.clone() };
        // `--data /tmp`, or a person's home: closing that would lock others out of what is not ours.
        if directory.is_untouched() && directory.others_use_it().map_err(refused)? {
            return Err(DataError::OthersUse(path));
        }
        fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(refused)?;
        rustix::fs::access(&path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
            .map_err(|errno| refused(errno.into()))?;
        Ok(directory)
    }

    /// Whether it lets others in and is not empty; what a new file system has of its own does not count.
    fn others_use_it(&self) -> io::Result<bool> {
        let others = fs::metadata(&self.path)?.permissions().mode() & 0o077;
        if others == 0 {
            return Ok(false);
        }
        let is_somebodys = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name() != "lost+found");
        fs::read_dir(&self.path)?.map(is_somebodys).try_fold(false, |others, one: io::Result<bool>| Ok(others || one?))
    }

    /// The one at `path`, as it is: nothing is made and nothing is changed.
    pub(crate) fn existing(path: &Path) -> Result<Self, DataError> {
        let refused = |source| DataError::Unusable { path: path.to_owned(), source };
        let path = path.canonicalize().map_err(refused)?;
        if !fs::metadata(&path).map_err(refused)?.is_dir() {
            return Err(DataError::NotADirectory(path));
        }
        Ok(Self { path })
    }

    /// Whether no control plane ever had it, as far as this user can see.
    pub(crate) fn is_untouched(&self) -> bool {
        let made = [self.database(), self.master_key_file(), self.ca_certificate(), self.database_seen()];
        !made.iter().any(|path| fs::symlink_metadata(path).is_ok())
    }

    /// Whether a replica has it whose database is elsewhere.
    pub(crate) fn is_of_a_replica(&self) -> bool {
        self.database_seen().exists() && !self.database().exists()
    }

    /// Where it is, absolute.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The database.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("leasehold.db")
    }

    /// The database to be opened, and made where nothing was ever installed: a lost one is never replaced by a new one.
    pub(crate) fn database_to_open(&self) -> Result<PathBuf, DataError> {
        let path = self.database();
        match fs::metadata(&path) {
            Ok(found) if found.len() > 0 => Ok(path),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DataError::Unusable { path, source: error }),
            _ if self.has_installation() => Err(DataError::DatabaseGone(path)),
            _ => Ok(path),
        }
    }

    /// The CA's certificate, for remote command lines.
    pub(crate) fn ca_certificate(&self) -> PathBuf {
        self.path.join("ca.pem")
    }

    /// The state directory of the worker that `up` starts.
    pub(crate) fn worker_state(&self) -> PathBuf {
        self.path.join("worker")
    }

    /// What that worker says.
    pub(crate) fn worker_log(&self) -> PathBuf {
        self.path.join("worker.log")
    }

    /// The admin socket of a control plane that runs.
    pub(crate) fn admin_socket(&self) -> PathBuf {
        leasehold_server::admin_socket_path(&self.path)
    }

    /// Where the master key is.
    pub(crate) fn master_key_file(&self) -> PathBuf {
        self.path.join("master.key")
    }

    /// The master key, and whether it was made just now: durable before it is used, and only while nothing is `installed`.
    pub(crate) fn master_key(&self, installed: bool, entropy: &dyn Entropy) -> Result<(MasterKey, bool), DataError> {
        let path = self.master_key_file();
        match Self::master_key_at(&path) {
            Err(DataError::KeyGone(_)) if !installed && self.makes_master_key_at(&path) => {
                let key = MasterKey::new(entropy);
                self.write_private(&path, key.reveal().as_bytes())
                    .map_err(|source| DataError::Unusable { path, source })?;
                Ok((key, true))
            }
            found => Ok((found?, false)),
        }
    }

    /// Whether the first start makes the master key at `path`.
    pub(crate) fn makes_master_key_at(&self, path: &Path) -> bool {
        path == self.master_key_file() && !self.has_installation()
    }

    /// The master key in a file.
    pub(crate) fn master_key_at(path: &Path) -> Result<MasterKey, DataError> {
        let path = path.to_owned();
        match fs::read_to_string(&path).map(Zeroizing::new) {
            Ok(text) => MasterKey::parse(&text).map_err(|source| DataError::Key { path, source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(DataError::KeyGone(path)),
            Err(source) => Err(DataError::Unusable { path, source }),
        }
    }

    /// Takes back a master key that was made just now and has sealed nothing.
    pub(crate) fn remove_master_key(&self) -> Result<(), DataError> {
        let path = self.master_key_file();
        fs::remove_file(&path).map_err(|source| DataError::Unusable { path, source })
    }

    /// Where the history of the PostgreSQL database is remembered that this control plane works on.
    pub(crate) fn database_seen(&self) -> PathBuf {
        self.path.join("database.seen")
    }

    /// The highest history of its database that this control plane has seen.
    pub(crate) fn seen(&self) -> Result<Option<History>, DataError> {
        let path = self.database_seen();
        match fs::read_to_string(&path) {
            Ok(text) => parse_seen(&text).map(Some).ok_or(DataError::Seen(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DataError::Unusable { path, source }),
        }
    }

    /// Remembers a history, durably.
    pub(crate) fn remember(&self, history: History) -> Result<(), DataError> {
        let path = self.database_seen();
        let text = format!("cluster {}\ntimeline {}\n", history.cluster, history.timeline);
        self.write_private(&path, text.as_bytes()).map_err(|source| DataError::Unusable { path, source })
    }

    /// The certificate is written once an installation exists, so it tells whether key and database were ever used.
    fn has_installation(&self) -> bool {
        self.ca_certificate().exists()
    }

    /// Writes the CA's certificate (DER) as PEM, where it is not there yet or is another.
    pub(crate) fn write_ca_certificate(&self, der: &[u8]) -> Result<(), DataError> {
        let path = self.ca_certificate();
        let pem = pem(der);
        if fs::read_to_string(&path).is_ok_and(|text| text == pem) {
            return Ok(());
        }
        self.write_private(&path, pem.as_bytes()).map_err(|source| DataError::Unusable { path, source })
    }

    /// Leaves the first admin token in a file, for a caller who wants to see nothing of ours.
    pub(crate) fn keep_first_token(&self, token: &ApiToken) -> Result<PathBuf, DataError> {
        let path = self.path.join("first-admin-token");
        let text = Zeroizing::new(format!("{}\n", *Zeroizing::new(token.reveal())));
        match self.write_private(&path, text.as_bytes()) {
            Ok(()) => Ok(path),
            Err(source) => Err(DataError::Unusable { path, source }),
        }
    }

    /// A whole file or none: written beside its place, synced, then put there.
    fn write_private(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let beside = path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        rustix::fs::rename(&beside, path)?;
        File::open(&self.path)?.sync_all()
    }
}

/// The file system of a data directory.
#[derive(Debug)]
pub(crate) struct DataVolume(PathBuf);

impl DataVolume {
    /// That of `data`.
    pub(crate) fn of(data: &DataDirectory) -> Self {
        Self(data.path.clone())
    }
}

impl Volume for DataVolume {
    fn space(&self) -> Option<Space> {
        let found = rustix::fs::statvfs(&self.0).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Space { free: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }
}

fn parse_seen(text: &str) -> Option<History> {
    let mut lines = text.lines();
    let cluster = lines.next()?.strip_prefix("cluster ")?.parse().ok()?;
    let timeline = lines.next()?.strip_prefix("timeline ")?.parse().ok()?;
    Some(History { cluster: ClusterId::new(cluster), timeline: Timeline::new(timeline) })
}

fn pem(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let base64 = data_encoding::BASE64.encode(der);
    let mut rest = base64.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::SystemEntropy;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_directory_and_the_key_are_the_owners_alone() {
        let root = tempfile::tempdir().unwrap();
        let data = DataDirectory::prepare(&root.path().join("a/b")).unwrap();
        let (key, _) = data.master_key(false, &SystemEntropy).unwrap();
        assert_eq!(mode(data.path()), 0o700);
        assert_eq!(mode(&data.master_key_file()), 0o600);
        assert_eq!(*data.master_key(false, &SystemEntropy).unwrap().0.reveal(), *key.reveal(), "made once");
    }

    #[test]
    fn a_file_in_the_directorys_place_is_named_with_the_fix() {
        let root = tempfile::tempdir().unwrap();
        let blocked = root.path().join("blocked");
        fs::write(&blocked, "").unwrap();
        let told = DataDirectory::prepare(&blocked).unwrap_err().to_string();
        assert!(told.contains("blocked") && told.contains("--data"), "{told}");
        let told = DataDirectory::existing(&blocked).unwrap_err().to_string();
        assert!(told.contains("blocked is a file, not a directory") && told.contains("--data"), "{told}");
    }

    #[test]
    fn a_directory_that_others_use_is_not_closed_to_them() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str, mode: u32| {
            let path = root.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        let used = at("used", 0o1777);
        fs::write(used.join("somebody's"), "").unwrap();
        let told = DataDirectory::prepare(&used).unwrap_err().to_string();
        assert!(told.contains("used holds other things") && told.contains("--data"), "{told}");
        assert_eq!(mode(&used), 0o777);

        // Empty, of a new file system, already private, or a data directory since before: taken, and closed.
        let new = at("new", 0o755);
        let volume = at("volume", 0o755);
        fs::create_dir(volume.join("lost+found")).unwrap();
        let private = at("private", 0o700);
        fs::write(private.join("notes"), "").unwrap();
        let ours = at("ours", 0o755);
        fs::write(ours.join("master.key"), "").unwrap();
        for path in [new, volume, private, ours] {
            assert_eq!(mode(DataDirectory::prepare(&path).unwrap().path()), 0o700, "{}", path.display());
        }
    }

    #[test]
    fn a_lost_key_is_never_replaced_by_a_new_one() {
        let root = tempfile::tempdir().unwrap();
        let data = DataDirectory::prepare(root.path()).unwrap();
        assert!(matches!(data.master_key(true, &SystemEntropy), Err(DataError::KeyGone(_))), "another replica's");
        data.master_key(false, &SystemEntropy).unwrap();
        data.write_ca_certificate(b"a certificate").unwrap();
        fs::remove_file(data.master_key_file()).unwrap();
        assert!(matches!(data.master_key(false, &SystemEntropy), Err(DataError::KeyGone(_))));
        fs::write(data.master_key_file(), "no key").unwrap();
        assert!(matches!(data.master_key(false, &SystemEntropy), Err(DataError::Key { .. })));
    }

    #[test]
    fn the_history_that_was_seen_is_kept_and_damage_is_told() {
        let root = tempfile::tempdir().unwrap();
        let data = DataDirectory::prepare(root.path()).unwrap();
        assert_eq!(data.seen().unwrap(), None);
        let history = History { cluster: ClusterId::new(u64::MAX), timeline: Timeline::new(3) };
        data.remember(history).unwrap();
        assert_eq!(data.seen().unwrap(), Some(history));
        assert_eq!(mode(&data.database_seen()), 0o600);
        fs::write(data.database_seen(), "cluster 7\n").unwrap();
        assert!(matches!(data.seen(), Err(DataError::Seen(_))));
    }

    #[test]
    fn a_lost_database_is_never_replaced_by_a_new_one() {
        let root = tempfile::tempdir().unwrap();
        let data = DataDirectory::prepare(root.path()).unwrap();
        assert_eq!(data.database_to_open().unwrap(), data.database(), "the first start makes it");
        fs::write(data.database(), "").unwrap();
        assert_eq!(data.database_to_open().unwrap(), data.database(), "a first start that was cut off begins again");
        data.write_ca_certificate(b"a certificate").unwrap();
        assert!(matches!(data.database_to_open(), Err(DataError::DatabaseGone(_))));
        fs::remove_file(data.database()).unwrap();
        let told = data.database_to_open().unwrap_err().to_string();
        assert!(told.contains("leasehold.db is missing") && told.contains("--data"), "{told}");
        fs::write(data.database(), "SQLite format 3").unwrap();
        assert_eq!(data.database_to_open().unwrap(), data.database());
    }

    #[test]
    fn a_certificate_is_written_as_pem() {
        assert_eq!(
            pem(&[0; 60]),
            format!("-----BEGIN CERTIFICATE-----\n{}\n{}\n-----END CERTIFICATE-----\n", "A".repeat(64), "A".repeat(16))
        );
    }
}
