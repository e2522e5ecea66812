//! The files that belong to an installation, held to what the database says of it: the master key, and the CA's certificate.

use leasehold_control::install::{self, InstallError};
use leasehold_store::call::Installation;

use super::Finding;
use super::files::closed;
use crate::data_directory::{DataDirectory, DataError};
use crate::master_key::{FoundKey, KeyError, MasterKeyArgs};

/// What the database says of its installation.
#[derive(Debug)]
pub(crate) enum Installed {
    /// It was made.
    Yes(Box<Installation>),
    /// The first start makes it.
    NotYet,
    /// That cannot be told, for this reason.
    Unknown(&'static str),
}

/// The master key: there, closed to others, and the one that this installation was made with.
pub(crate) fn master_key(data: &DataDirectory, keys: &MasterKeyArgs, installed: &Installed) -> Finding {
    let check = "master_key";
    let FoundKey { key, origin, file, .. } = match keys.look(data) {
        Ok(found) => found,
        Err(error) => return no_key(data, installed, error),
    };
    let opened = match installed {
        Installed::Yes(installation) => install::check(installation, &key),
        Installed::NotYet | Installed::Unknown(_) => Ok(()),
    };
    match opened {
        Ok(()) => {}
        Err(InstallError::MasterKey) => {
            let advice = "put the key there that this installation was made with (for a replica: master.key of the first one), or \
                          name the database that this key is of";
            return Finding::problem(
                check,
                format!("{origin} does not open the installation: it is another's key"),
                advice,
            );
        }
        Err(error) => return Finding::problem(check, error.to_string(), "restore the data from a backup"),
    }
    let found = match file {
        Some(file) => closed(check, &file, 0o600),
        None => Finding::ok(check, "in the environment"),
    };
    let detail = |words: &str| format!("{}, {words}", found.detail);
    match installed {
        // Who may look into it comes first.
        _ if found.advice.is_some() => found,
        Installed::Yes(_) => Finding::ok(check, detail("opens the installation")),
        Installed::NotYet => Finding::ok(check, detail("with which the first start makes the installation")),
        Installed::Unknown(why) => {
            Finding::skipped(check, detail(&format!("but whether it opens the installation cannot be told: {why}")))
        }
    }
}

fn no_key(data: &DataDirectory, installed: &Installed, error: KeyError) -> Finding {
    let check = "master_key";
    let put_it_back = "put the key back that this data was made with, from where it was kept safe: without it no worker can be \
                       let in and no certificate be made";
    match (error, installed) {
        (KeyError::File(DataError::KeyGone(path)), Installed::NotYet) if data.makes_master_key_at(&path) => {
            Finding::skipped(check, format!("none yet: the first start makes {}", path.display()))
        }
        (KeyError::File(DataError::KeyGone(path)), Installed::NotYet) => Finding::problem(
            check,
            format!("{} is not there", path.display()),
            "put the key there before the first start, or name none: the first start then makes one in the data directory",
        ),
        (error @ KeyError::File(DataError::Unusable { .. }), _) => {
            Finding::problem(check, error.to_string(), "run the doctor as the user whose data it is")
        }
        (error, _) => Finding::problem(check, error.to_string(), put_it_back),
    }
}

/// The CA's certificate, which a control plane writes whenever it starts.
pub(crate) fn ca_file(data: &DataDirectory, installed: &Installed) -> Finding {
    let check = "ca_file";
    let ca = data.ca_certificate();
    match installed {
        _ if ca.exists() => Finding::ok(check, ca.display().to_string()),
        Installed::NotYet => Finding::skipped(check, format!("none yet: the first start writes {}", ca.display())),
        Installed::Yes(_) | Installed::Unknown(_) => Finding::warning(
            check,
            format!("{} is missing", ca.display()),
            "start or restart the control plane, which writes it anew from the database: command lines on other machines need a \
             copy of it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use std::sync::Arc;

    use leasehold_sql::sqlite::{Options, SqliteStore};
    use leasehold_store::port::Store as _;

    use super::super::Status;
    use super::*;
    use crate::system::{SystemClock, SystemEntropy};

    /// One that was made with the key of this directory.
    async fn installation(data: &DataDirectory) -> Installed {
        let (key, _) = data.master_key(false, &SystemEntropy).unwrap();
        let store = SqliteStore::open(data.path().join("a.db"), Options::new(Arc::new(SystemClock))).unwrap();
        install::open(&store, &key, None, &SystemClock, &SystemEntropy).await.unwrap();
        let made = store.installation().await.unwrap().unwrap();
        store.close().await;
        Installed::Yes(Box::new(made))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_key_of_another_installation_is_told_from_the_right_one() {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let data = DataDirectory::prepare(root.path()).unwrap();
        let keys = MasterKeyArgs::default();
        let ours = installation(&data).await;
        let right = master_key(&data, &keys, &ours);
        assert_eq!(right.status, Status::Ok, "{right:?}");
        assert!(right.detail.contains("opens the installation"), "{right:?}");

        let theirs = installation(&DataDirectory::prepare(other.path()).unwrap()).await;
        let wrong = master_key(&data, &keys, &theirs);
        assert_eq!(wrong.status, Status::Problem, "{wrong:?}");
        assert!(wrong.detail.contains("another's key") && wrong.detail.contains("master.key"), "{wrong:?}");

        let unknown = master_key(&data, &keys, &Installed::Unknown("nobody answers"));
        assert_eq!(unknown.status, Status::Skipped, "{unknown:?}");
        assert!(unknown.detail.contains("cannot be told: nobody answers"), "{unknown:?}");

        fs::set_permissions(data.master_key_file(), Permissions::from_mode(0o644)).unwrap();
        assert_eq!(master_key(&data, &keys, &ours).status, Status::Problem, "others may read it");
        assert!(master_key(&data, &keys, &theirs).detail.contains("another's key"), "the worse of two is told");
    }

    #[test]
    fn before_the_first_start_nothing_is_missing() {
        let root = tempfile::tempdir().unwrap();
        let data = DataDirectory::prepare(root.path()).unwrap();
        let keys = MasterKeyArgs::default();
        for finding in [master_key(&data, &keys, &Installed::NotYet), ca_file(&data, &Installed::NotYet)] {
            assert_eq!(finding.status, Status::Skipped, "{finding:?}");
            assert!(finding.detail.contains("the first start"), "{finding:?}");
        }
        assert!(!data.master_key_file().exists(), "looking makes nothing");
        let named = MasterKeyArgs::of_file(root.path().join("elsewhere"));
        let finding = master_key(&data, &named, &Installed::NotYet);
        assert_eq!(finding.status, Status::Problem, "a key that is named is never made: {finding:?}");
        assert!(finding.detail.contains("elsewhere"), "{finding:?}");

        data.master_key(false, &SystemEntropy).unwrap();
        assert_eq!(master_key(&data, &keys, &Installed::NotYet).status, Status::Ok);
        let unknown = Installed::Unknown("nobody answers");
        assert_eq!(ca_file(&data, &unknown).status, Status::Warning);
    }
}
