//! Devices of a worker's machine, by the names that its drivers know them by: a run gets whole ones, for itself.
//!
//! Which an attempt has is decided by its claim and stands on its lease; it never changes. (Control design, *Placement*.)

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::capability::Capabilities;
use crate::limits::GPUS;
use crate::shape::{NAME_RULE, is_name};

/// One device on its machine, such as `GPU-8f1c0c52-…`, `0` or `renderD128`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(String);

/// Why a text names no devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Not the name of a device.
    #[error("`{0}` is no name of a device: write {NAME_RULE}")]
    NotName(String),
    /// One device twice.
    #[error("the device `{0}` stands there twice")]
    Twice(String),
    /// More than a machine may have.
    #[error("{0} devices, at most {GPUS} are allowed")]
    TooMany(usize),
}

impl DeviceId {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceId {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        if is_name(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(DeviceError::NotName(text.chars().take(64).collect()))
        }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The devices of one attempt, in the order it sees them; at most [`GPUS`], none of them twice. Most attempts have none.
///
/// Spelled with commas between, as `CUDA_VISIBLE_DEVICES` is; nothing where there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices(Vec<DeviceId>);

impl Devices {
    /// These devices.
    pub fn new(ids: Vec<DeviceId>) -> Result<Self, DeviceError> {
        if ids.len() > GPUS {
            return Err(DeviceError::TooMany(ids.len()));
        }
        let mut seen = BTreeSet::new();
        match ids.iter().find(|id| !seen.insert(*id)) {
            Some(twice) => Err(DeviceError::Twice(twice.to_string())),
            None => Ok(Self(ids)),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// One after another.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &DeviceId> {
        self.0.iter()
    }

    /// Whether a machine with these capabilities has them all.
    pub fn are_of(&self, capabilities: &Capabilities) -> bool {
        self.iter().all(|id| capabilities.gpus.iter().any(|gpu| gpu.id == *id))
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, id) in self.iter().enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            id.fmt(f)?;
        }
        Ok(())
    }
}

impl FromStr for Devices {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        Self::new(text.split(',').map(str::parse).collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_spelled_as_cuda_reads_them() {
        let uuid = "GPU-8f1c0c52-7ad3-4a3c-2d1f-0a5b8c9d0e1f";
        for text in ["", "0", "1,0", "renderD128", uuid, "MIG-GPU-8f1c0c52/1/0"] {
            assert_eq!(text.parse::<Devices>().unwrap().to_string(), text);
        }
        let many = (0..17).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        for text in [",", "0,", "0,0", "a b", "0;1", many.as_str()] {
            assert!(text.parse::<Devices>().is_err(), "{text}");
        }
    }
}
