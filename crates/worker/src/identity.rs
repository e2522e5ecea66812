//! `identity.json`: who this worker is, where its control plane is, and whom it trusts. Written once, by `join`.
//!
//! The state directory remembers its machine and, within one boot, its own device and inode (`place.json`), and refuses
//! another machine or a copy. (Worker design, *One start path*; decisions, *How a new machine trusts the server*.)

use std::os::fd::AsFd;
use std::path::Path;

use data_encoding::BASE64;
use leasehold_core::crypto::Digest;
use leasehold_core::id::{BootId, TrustDomain, WorkerId};
use leasehold_core::limits::KIB;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::durable::Dir;
use crate::fault::steps::file;
use crate::state::{StateError, StateFile};

const SCHEMA: &str = "leasehold/worker-identity/v1";
const PLACE_SCHEMA: &str = "leasehold/worker-place/v1";
const FILE_NAME: &str = "identity.json";
const PLACE_NAME: &str = "place.json";

/// The worker's identity.
#[derive(Clone)]
pub struct Identity {
    /// Its name.
    pub worker: WorkerId,
    /// The installation's name in every certificate.
    pub trust_domain: TrustDomain,
    /// Host and port of the control plane's worker ingress.
    pub address: String,
    /// The digest of the CA's public key that `join` pinned.
    pub ca: Digest,
    /// The certificate chain, DER, leaf first.
    pub certificates: Vec<Vec<u8>>,
    /// The private key, PKCS#8 DER.
    pub key: Zeroizing<Vec<u8>>,
    /// The CA certificates that are trusted, DER.
    pub trust_bundle: Vec<Vec<u8>>,
    /// The machine that joined, where it has an id.
    pub machine: Option<String>,
    /// Whether jobs may run as root.
    pub allow_root: bool,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("worker", &self.worker).field("address", &self.address).finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    worker: String,
    trust_domain: String,
    address: String,
    ca: String,
    certificates: Vec<String>,
    key: Zeroizing<String>,
    trust_bundle: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    allow_root: bool,
}

impl StateFile for Identity {
    type Kind = file::Identity;
    const NAME: &'static str = FILE_NAME;
    const LIMIT: usize = 256 * KIB;

    fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        let list = |list: &[Vec<u8>]| list.iter().map(|der| BASE64.encode(der)).collect();
        let file = File {
            schema: SCHEMA.to_owned(),
            worker: self.worker.to_string(),
            trust_domain: self.trust_domain.to_string(),
            address: self.address.clone(),
            ca: self.ca.to_string(),
            certificates: list(&self.certificates),
            key: Zeroizing::new(BASE64.encode(&self.key)),
            trust_bundle: list(&self.trust_bundle),
            machine: self.machine.clone(),
            allow_root: self.allow_root,
        };
        serde_json::to_vec_pretty(&file).map_err(|_| StateError::damaged(FILE_NAME, "cannot be spelled"))
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        // What is damaged is not repeated: it holds the key.
        let damaged = |why: &str| StateError::damaged(FILE_NAME, why);
        let file: File = serde_json::from_slice(bytes).map_err(|_| damaged("not the expected JSON"))?;
        if file.schema != SCHEMA {
            return Err(damaged("another schema"));
        }
        let der = |text: &String| BASE64.decode(text.as_bytes()).map_err(|_| damaged("not base64"));
        let list = |list: &[String]| list.iter().map(der).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            worker: file.worker.parse().map_err(|_| damaged("worker"))?,
            trust_domain: file.trust_domain.parse().map_err(|_| damaged("trust_domain"))?,
            address: file.address,
            ca: file.ca.parse().map_err(|_| damaged("ca"))?,
            certificates: list(&file.certificates)?,
            key: Zeroizing::new(BASE64.decode(file.key.as_bytes()).map_err(|_| damaged("key"))?),
            trust_bundle: list(&file.trust_bundle)?,
            machine: file.machine,
            allow_root: file.allow_root,
        })
    }
}

/// Where the state directory stands, within one boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    schema: String,
    boot_id: String,
    device: u64,
    inode: u64,
}

impl StateFile for Place {
    type Kind = file::Place;
    const NAME: &'static str = PLACE_NAME;
    const LIMIT: usize = 4 * KIB;

    fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        serde_json::to_vec(self).map_err(|_| StateError::damaged(PLACE_NAME, "cannot be spelled"))
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        let place: Self = serde_json::from_slice(bytes).map_err(|error| StateError::damaged(PLACE_NAME, error))?;
        if place.schema == PLACE_SCHEMA { Ok(place) } else { Err(StateError::damaged(PLACE_NAME, "another schema")) }
    }
}

/// The state directory is not where, or on what, it was made.
#[derive(Debug, thiserror::Error)]
pub enum MovedError {
    /// Another machine.
    #[error(
        "this state directory belongs to another machine: a copied worker is never let in. Enroll this machine under a \
         name of its own: `leasehold worker enroll --name NAME`, then `leasehold-worker join …` with a fresh state \
         directory"
    )]
    Machine,
    /// A copy on the same machine.
    #[error(
        "this state directory is a copy of another one on this machine. Start the worker with the original, or enroll a \
         second worker: `leasehold worker enroll --name NAME`, then `leasehold-worker join …` with a fresh state directory"
    )]
    Copy,
    /// The disk failed.
    #[error(transparent)]
    State(StateError),
    /// It cannot be told.
    #[error(
        "{0}: whether this state directory is a copy cannot be told. If it is the original, where the worker always ran, \
         remove that file and start again"
    )]
    Untold(StateError),
}

impl From<StateError> for MovedError {
    fn from(error: StateError) -> Self {
        if error.may_pass() { Self::State(error) } else { Self::Untold(error) }
    }
}

/// The machine's id, where it has one.
pub fn machine_id() -> Option<String> {
    let text = std::fs::read_to_string("/etc/machine-id").ok()?;
    let id = text.trim();
    (!id.is_empty() && id.len() <= 64).then(|| id.to_owned())
}

/// Refuses another machine and a copy; remembers the place of this boot. Writes only in a boot's first start.
pub fn check_place(dir: &Dir, identity: &Identity, machine: Option<&str>, boot: &BootId) -> Result<(), MovedError> {
    match look_at_place(dir, identity, machine, boot)? {
        Some(new) => Ok(new.write(dir)?),
        None => Ok(()),
    }
}

/// Whether the state directory stands where it was made; nothing is written. Answers what is to be remembered.
fn look_at_place(
    dir: &Dir,
    identity: &Identity,
    machine: Option<&str>,
    boot: &BootId,
) -> Result<Option<Place>, MovedError> {
    if let (Some(known), Some(here)) = (identity.machine.as_deref(), machine)
        && known != here
    {
        return Err(MovedError::Machine);
    }
    let stat = rustix::fs::fstat(dir.as_fd()).map_err(|error| StateError::damaged(PLACE_NAME, error))?;
    let here =
        Place { schema: PLACE_SCHEMA.to_owned(), boot_id: boot.to_string(), device: stat.st_dev, inode: stat.st_ino };
    match Place::read(dir)? {
        Some(known) if known == here => Ok(None),
        Some(known) if known.boot_id == here.boot_id => Err(MovedError::Copy),
        _ => Ok(Some(here)),
    }
}

/// Refuses another machine and a copy, for somebody who only looks.
pub fn is_in_place(dir: &Dir, identity: &Identity, machine: Option<&str>, boot: &BootId) -> Result<(), MovedError> {
    look_at_place(dir, identity, machine, boot).map(drop)
}

/// Whether this state directory has an identity already.
pub fn exists(state: &Path) -> bool {
    state.join(FILE_NAME).exists()
}

#[cfg(test)]
mod tests {
    use leasehold_core::crypto::Domain;

    use super::*;

    fn identity() -> Identity {
        Identity {
            worker: "nas".parse().unwrap(),
            trust_domain: "home.example".parse().unwrap(),
            address: "127.0.0.1:7443".to_owned(),
            ca: Digest::of(Domain::PublicKey, b"key"),
            certificates: vec![vec![1, 2, 3]],
            key: Zeroizing::new(vec![9; 40]),
            trust_bundle: vec![vec![4]],
            machine: Some("machine-1".to_owned()),
            allow_root: false,
        }
    }

    #[test]
    fn an_identity_survives_its_file_and_shows_no_key() {
        let parent = tempfile::tempdir().unwrap();
        let dir = Dir::create(&parent.path().join("state")).unwrap();
        identity().write(&dir).unwrap();
        let read = Identity::read(&dir).unwrap().unwrap();
        assert_eq!(
            (read.worker, read.key, read.certificates),
            (identity().worker, identity().key, identity().certificates)
        );
        assert!(!format!("{:?}", identity()).contains("key"));
    }

    #[test]
    fn another_machine_and_a_copy_are_refused_and_a_reboot_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let dir = Dir::create(&parent.path().join("state")).unwrap();
        let copy = Dir::create(&parent.path().join("copy")).unwrap();
        let (boot, next): (BootId, BootId) = ("boot-1".parse().unwrap(), "boot-2".parse().unwrap());
        let machine = Some("machine-1");
        check_place(&dir, &identity(), machine, &boot).unwrap();
        check_place(&dir, &identity(), machine, &boot).unwrap();
        std::fs::copy(parent.path().join("state/place.json"), parent.path().join("copy/place.json")).unwrap();
        assert!(matches!(check_place(&copy, &identity(), machine, &boot), Err(MovedError::Copy)));
        assert!(matches!(check_place(&dir, &identity(), Some("machine-2"), &boot), Err(MovedError::Machine)));
        check_place(&dir, &identity(), machine, &next).unwrap();
    }
}
