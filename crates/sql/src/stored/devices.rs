//! Devices of an attempt, as they are spelled everywhere.

use leasehold_core::device::Devices;

/// The text of `devices`: their names, commas between; nothing where there are none.
pub(crate) fn encode(devices: &Devices) -> String {
    devices.to_string()
}

/// What [`encode`] wrote.
pub(crate) fn decode(text: &str) -> Result<Devices, String> {
    text.parse().map_err(|error: leasehold_core::device::DeviceError| error.to_string())
}
