//! Invariant 7: the tokens of a run, gathered from the worker's own files while they live, and looked for afterwards where
//! none may stand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

/// Characters of a token: 32 bytes in base64url.
const LENGTH: usize = 43;

/// Tokens that were seen.
#[derive(Debug, Default)]
pub(crate) struct Secrets(BTreeSet<Vec<u8>>);

impl Secrets {
    /// Adds one.
    pub(crate) fn add(&mut self, token: &str) {
        if is_token(token.as_bytes()) {
            self.0.insert(token.as_bytes().to_vec());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds what the files of a worker's state directory hold now: asks, records, its ticket.
    pub(crate) fn gather(&mut self, state: &Path) {
        let files = std::fs::read_dir(state.join("inbox")).into_iter().flatten().flatten().map(|entry| entry.path());
        for file in files.chain([state.join("pending-claims.json"), state.join("session.json")]) {
            // A file that is being replaced is read the next time.
            if let Some(value) = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                self.gather_from("", &value);
            }
        }
    }

    fn gather_from(&mut self, key: &str, value: &Value) {
        match value {
            Value::String(text) if key.contains("token") || key.contains("ticket") => self.add(text),
            Value::Array(items) => items.iter().for_each(|item| self.gather_from(key, item)),
            Value::Object(fields) => fields.iter().for_each(|(key, field)| self.gather_from(key, field)),
            _ => {}
        }
    }

    /// How often each token stands in these bytes.
    fn found_in(&self, bytes: &[u8]) -> BTreeMap<&[u8], usize> {
        let mut found = BTreeMap::new();
        for word in bytes.split(|byte| !is_letter(*byte)).filter(|word| word.len() >= LENGTH) {
            for window in word.windows(LENGTH) {
                if let Some(token) = self.0.get(window) {
                    *found.entry(token.as_slice()).or_insert(0) += 1;
                }
            }
        }
        found
    }

    /// What of these files holds a token; `allowed` says how often a file may hold one.
    pub(crate) fn leaks(&self, files: &[PathBuf], allowed: impl Fn(&Path, &str) -> usize) -> Result<Vec<String>> {
        let mut leaks = Vec::new();
        for file in files {
            for (token, times) in self.found_in(&std::fs::read(file)?) {
                let token = String::from_utf8_lossy(token);
                if times > allowed(file, &token) {
                    let name = file.display();
                    leaks.push(format!("a token that begins with {} stands {times} times in {name}", &token[..6]));
                }
            }
        }
        Ok(leaks)
    }
}

const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

fn is_token(bytes: &[u8]) -> bool {
    bytes.len() == LENGTH && bytes.iter().copied().all(is_letter)
}

/// Every file of a directory, also in its folders.
pub(crate) fn files_under(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(files_under(&entry.path())?);
        } else if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gathered_token_is_found_wherever_it_stands() {
        let directory = tempfile::tempdir().unwrap();
        let token = "a".repeat(20) + &"-_9".repeat(7) + "zz";
        std::fs::create_dir(directory.path().join("inbox")).unwrap();
        let record = format!("{{\"offer\":{{\"lease_token\":\"{token}\",\"worker\":\"w\"}}}}");
        std::fs::write(directory.path().join("inbox/1.json"), record).unwrap();
        let mut secrets = Secrets::default();
        secrets.gather(directory.path());
        assert_eq!(secrets.len(), 1);
        let log = directory.path().join("log");
        std::fs::write(&log, format!("x={token}\n")).unwrap();
        let files = files_under(directory.path()).unwrap();
        assert_eq!(secrets.leaks(&files, |_, _| 0).unwrap().len(), 2);
        let meant = |file: &Path, _: &str| usize::from(file.extension().is_some());
        assert_eq!(secrets.leaks(&files, meant).unwrap().len(), 1);
        std::fs::write(&log, format!("x={}", &token[1..])).unwrap();
        assert_eq!(secrets.leaks(&[log], |_, _| 0).unwrap(), Vec::<String>::new());
    }
}
