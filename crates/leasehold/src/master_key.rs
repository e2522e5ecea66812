//! Where the master key comes from: a file of the data directory, a file that is named, or the environment.
//!
//! It opens what the store keeps sealed, so every replica of a control plane needs the same one. Only the first start of an
//! installation makes one, and only in the data directory: a key that is named must be there. (Control design, *Logs,
//! artifacts, secrets*.)

use std::path::PathBuf;

use clap::Args;
use leasehold_control::seal::{MasterKey, MasterKeyError};
use leasehold_core::time::Entropy;
use zeroize::Zeroizing;

use crate::data_directory::{DataDirectory, DataError};
use crate::system::SystemEntropy;

/// The variable that carries the key itself.
const VARIABLE: &str = "LEASEHOLD_MASTER_KEY";

const HELP: &str = "A file that holds the master key, the same on every replica; LEASEHOLD_MASTER_KEY holds the key itself \
                    [default: master.key in --data, made at the first start]";

/// Where the master key is.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MasterKeyArgs {
    #[arg(long, env = "LEASEHOLD_MASTER_KEY_FILE", value_name = "FILE", help = HELP)]
    master_key_file: Option<PathBuf>,
}

/// A master key, and what is to be said of it when it does not fit.
#[derive(Debug)]
pub(crate) struct FoundKey {
    /// The key.
    pub key: MasterKey,
    /// Where it was found.
    pub origin: String,
    /// The file that it is in; none in the environment.
    pub file: Option<PathBuf>,
    /// Whether it was made just now.
    pub made: bool,
}

/// Why there is no master key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// It is named twice.
    #[error("{VARIABLE} and --master-key-file (or LEASEHOLD_MASTER_KEY_FILE) both name a master key: keep one")]
    Twice,
    /// The environment's is none.
    #[error("{VARIABLE}: {0}")]
    Variable(MasterKeyError),
    /// That of the data directory, or of the file that is named.
    #[error(transparent)]
    File(#[from] DataError),
}

impl MasterKeyArgs {
    /// The key; made where `data` keeps it and nothing is `installed` yet.
    pub(crate) fn find(
        &self,
        data: &DataDirectory,
        installed: bool,
        entropy: &dyn Entropy,
    ) -> Result<FoundKey, KeyError> {
        self.find_with(variable().as_ref(), data, installed, entropy)
    }

    /// The key that is there: none is made.
    pub(crate) fn look(&self, data: &DataDirectory) -> Result<FoundKey, KeyError> {
        self.find(data, true, &SystemEntropy)
    }

    /// For tests: the key is in this file.
    #[cfg(test)]
    pub(crate) fn of_file(file: PathBuf) -> Self {
        Self { master_key_file: Some(file) }
    }

    fn find_with(
        &self,
        variable: Option<&Zeroizing<String>>,
        data: &DataDirectory,
        installed: bool,
        entropy: &dyn Entropy,
    ) -> Result<FoundKey, KeyError> {
        match (&self.master_key_file, variable) {
            (Some(_), Some(_)) => Err(KeyError::Twice),
            (None, Some(text)) => {
                let key = MasterKey::parse(text).map_err(KeyError::Variable)?;
                Ok(FoundKey { key, origin: VARIABLE.to_owned(), file: None, made: false })
            }
            (Some(file), None) => {
                let key = DataDirectory::master_key_at(file)?;
                Ok(FoundKey { key, origin: file.display().to_string(), file: Some(file.clone()), made: false })
            }
            (None, None) => {
                let (key, made) = data.master_key(installed, entropy)?;
                let file = data.master_key_file();
                Ok(FoundKey { key, origin: file.display().to_string(), file: Some(file), made })
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a binary reads its own environment, and a flag would show the key")]
fn variable() -> Option<Zeroizing<String>> {
    let text = std::env::var(VARIABLE).map(Zeroizing::new).ok()?;
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_named_is_never_made_and_one_place_names_it() {
        let root = tempfile::tempdir().unwrap();
        let data = DataDirectory::prepare(root.path()).unwrap();
        let named = MasterKeyArgs::of_file(root.path().join("elsewhere"));
        let find = |args: &MasterKeyArgs, variable: Option<&str>| {
            let variable = variable.map(|text| Zeroizing::new(text.to_owned()));
            args.find_with(variable.as_ref(), &data, false, &SystemEntropy)
        };
        let missing = find(&named, None).unwrap_err().to_string();
        assert!(missing.contains("elsewhere"), "{missing}");

        let made = find(&MasterKeyArgs::default(), None).unwrap();
        assert!(made.made);
        assert!(!find(&MasterKeyArgs::default(), None).unwrap().made);
        let text = made.key.reveal();
        std::fs::write(root.path().join("elsewhere"), text.as_bytes()).unwrap();
        assert_eq!(*find(&named, None).unwrap().key.reveal(), *text);
        assert_eq!(*find(&MasterKeyArgs::default(), Some(text.as_str())).unwrap().key.reveal(), *text);
        assert!(matches!(find(&named, Some(text.as_str())), Err(KeyError::Twice)));
        let wrong = find(&MasterKeyArgs::default(), Some("secret, but no key")).unwrap_err().to_string();
        assert!(wrong.contains(VARIABLE) && !wrong.contains("secret"), "{wrong}");
    }
}
