//! The inbox directory: published once, updated by compare-and-swap, read in pages, quarantined where it cannot be trusted.

use std::path::Path;

use leasehold_core::counter::RecordVersion;
use leasehold_core::id::OfferId;
use leasehold_core::limits::{INBOX_RECORD_BYTES, PAGE};

use super::file::RecordError;
use super::record::Record;
use crate::durable::{Dir, DurableError};
use crate::fault::steps::file;

/// The inbox of one worker.
#[derive(Debug)]
pub struct Inbox {
    dir: Dir,
    quarantine: Dir,
}

/// A write was not done.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The disk refused.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The record cannot be spelled.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The file holds another version than the one that this write follows.
    #[error("the inbox record of offer {offer} is at another version than {expected}: another process writes here")]
    Conflict {
        /// Which record.
        offer: OfferId,
        /// The version that was to be replaced.
        expected: u64,
    },
}

/// A page of the inbox, by offer id.
#[derive(Debug, Default)]
pub struct Page {
    /// The records.
    pub records: Vec<Record>,
    /// What could not be trusted, moved away, with the reason.
    pub quarantined: Vec<String>,
    /// Where the next page begins; none: this was the last.
    pub next: Option<String>,
}

impl Inbox {
    /// Opens the inbox of a state directory, making it where it is missing.
    pub fn open(state: &Path) -> Result<Self, DurableError> {
        Ok(Self { dir: Dir::create(&state.join("inbox"))?, quarantine: Dir::create(&state.join("quarantine"))? })
    }

    /// Where what cannot be trusted goes.
    pub fn quarantine(&self) -> &Dir {
        &self.quarantine
    }

    /// Writes a record: the first version is published, later ones replace the version before.
    pub fn write(&self, record: &Record) -> Result<(), InboxError> {
        let name = file_name(record.id());
        let bytes = record.to_bytes()?;
        if record.version == RecordVersion::FIRST {
            return match self.dir.publish::<file::Record>(&name, &bytes) {
                // A publication that failed half-way: the very same record.
                Err(DurableError::Exists(_))
                    if self.dir.read(&name, INBOX_RECORD_BYTES)?.as_deref() == Some(&bytes) =>
                {
                    Ok(self.dir.publish_again::<file::Record>()?)
                }
                published => Ok(published?),
            };
        }
        let conflict = || InboxError::Conflict { offer: record.id(), expected: record.version.get().saturating_sub(1) };
        let old = self.dir.read(&name, INBOX_RECORD_BYTES)?.ok_or_else(conflict)?;
        let old = Record::from_bytes(&old)?;
        // The same version again is a write that failed after its rename; nobody acted on what it held.
        let same = old.version == record.version && old.offer == record.offer && old.token == record.token;
        if !same && !record.may_replace(&old) {
            return Err(conflict());
        }
        // For every stage but the first, falling back one step after a power cut is harmless.
        Ok(self.dir.update::<file::Record>(&name, &bytes)?)
    }

    /// Removes a settled record.
    pub fn remove(&self, offer: OfferId) -> Result<(), InboxError> {
        Ok(self.dir.remove::<file::Record>(&file_name(offer))?)
    }

    /// The first records after `after`, at most a page. Unfinished temporary files are removed on the way.
    pub fn page(&self, after: Option<&str>) -> Result<Page, DurableError> {
        let mut page = Page::default();
        for name in self.dir.names()? {
            if after.is_some_and(|after| name.as_str() <= after) {
                continue;
            }
            if page.records.len() + page.quarantined.len() >= PAGE {
                return Ok(page);
            }
            page.next = Some(name.clone());
            if name.ends_with(".json.new") {
                // Never published: whatever it was, it was not acknowledged.
                match self.dir.remove::<file::Record>(&name) {
                    Ok(()) => continue,
                    Err(error) if error.may_pass() => return Err(error),
                    // No file of ours.
                    Err(_) => {}
                }
            }
            match self.read(&name)? {
                Ok(Some(record)) => page.records.push(record),
                Ok(None) => {}
                Err(why) => {
                    let moved = self.dir.quarantine::<file::Record>(&name, &self.quarantine)?;
                    page.quarantined.push(format!("inbox/{name} was moved to quarantine/{moved}: {why}"));
                }
            }
        }
        page.next = None;
        Ok(page)
    }

    /// What lies in quarantine, by name: a person has not looked at it yet.
    pub fn quarantined(&self) -> Result<Vec<String>, DurableError> {
        self.quarantine.names()
    }

    /// A record, or why it cannot be trusted. A disk that cannot be read says nothing about what is on it.
    fn read(&self, name: &str) -> Result<Result<Option<Record>, String>, DurableError> {
        let bytes = match self.dir.read(name, INBOX_RECORD_BYTES) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Ok(None)),
            Err(error) if error.may_pass() => return Err(error),
            Err(error) => return Ok(Err(error.to_string())),
        };
        Ok(match Record::from_bytes(&bytes) {
            Ok(record) if file_name(record.id()) == name => Ok(Some(record)),
            Ok(_) => Err("its name is another offer's".to_owned()),
            Err(error) => Err(error.to_string()),
        })
    }
}

fn file_name(offer: OfferId) -> String {
    format!("{offer}.json")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use leasehold_core::inbox::Stage;

    use super::super::record::tests::{callback, record};
    use super::*;

    fn inbox() -> (tempfile::TempDir, Inbox) {
        let state = tempfile::tempdir().unwrap();
        let inbox = Inbox::open(state.path()).unwrap();
        (state, inbox)
    }

    #[test]
    fn an_update_is_a_compare_and_swap() {
        let (_state, inbox) = inbox();
        let first = record(1);
        inbox.write(&first).unwrap();
        let next = first.moved(Stage::StartingAcknowledged, first.updated_at).unwrap();
        let after = next.moved(Stage::Launching { callback: callback() }, first.updated_at).unwrap();
        assert!(matches!(inbox.write(&after), Err(InboxError::Conflict { .. })), "a version is missing between");
        inbox.write(&next).unwrap();
        inbox.write(&after).unwrap();
        assert!(matches!(inbox.write(&next), Err(InboxError::Conflict { .. })), "an older version");
        assert_eq!(inbox.page(None).unwrap().records, [after]);
    }

    #[test]
    fn an_offer_is_published_once_and_its_repeat_must_be_identical() {
        let (_state, inbox) = inbox();
        inbox.write(&record(1)).unwrap();
        inbox.write(&record(1)).unwrap();
        let other = Record { session_generation: record(1).session_generation.next(), ..record(1) };
        assert!(inbox.write(&other).is_err());
    }

    #[test]
    fn pages_are_stable_and_bounded() {
        let (_state, inbox) = inbox();
        for n in 0..150 {
            inbox.write(&record(n)).unwrap();
        }
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = inbox.page(after.as_deref()).unwrap();
            assert!(page.records.len() <= PAGE);
            seen.extend(page.records.iter().map(Record::id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut sorted = seen.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((seen.len(), sorted), (150, seen));
    }

    #[test]
    fn what_cannot_be_trusted_is_moved_away_and_said() {
        let (state, inbox) = inbox();
        let good = record(1);
        inbox.write(&good).unwrap();
        inbox.write(&record(2)).unwrap();
        let path = |name: &str| state.path().join("inbox").join(name);
        let open_to_all = file_name(record(2).id());
        std::fs::set_permissions(path(&open_to_all), std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::write(path("garbage.json"), b"{").unwrap();
        std::fs::set_permissions(path("garbage.json"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(path("half.json.new"), b"{").unwrap();
        std::fs::create_dir(path("folder.json.new")).unwrap();
        let page = inbox.page(None).unwrap();
        assert_eq!(page.records, [good]);
        assert_eq!(page.quarantined.len(), 3, "{:?}", page.quarantined);
        for name in [open_to_all.as_str(), "garbage.json", "folder.json.new"] {
            assert!(state.path().join("quarantine").join(name).exists(), "{name}");
        }
        assert!(!path("half.json.new").exists());
        assert_eq!(inbox.page(None).unwrap().quarantined, Vec::<String>::new());
        assert_eq!(inbox.quarantined().unwrap().len(), 3, "until a person has looked");
    }

    #[test]
    fn a_settled_record_is_removed_and_may_be_gone_already() {
        let (_state, inbox) = inbox();
        inbox.write(&record(1)).unwrap();
        inbox.remove(record(1).id()).unwrap();
        inbox.remove(record(1).id()).unwrap();
        assert!(inbox.page(None).unwrap().records.is_empty());
    }
}
