//! The committed recordings.
#![allow(clippy::unwrap_used, dead_code, reason = "of tests, each of which uses a part")]

use std::path::Path;

use cmid_trace::Recording;

/// Recorded in the VM, on Linux 6.12: client, server, and the driver that adopts the server's id.
pub(crate) const KERNEL: &str = "linux-6.12";
/// The same on the simulator.
pub(crate) const SIM: &str = "sim";

/// The texts of one recording: FILE, FILE.2, FILE.3.
pub(crate) fn texts(name: &str) -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let names = [name.to_owned(), format!("{name}.2"), format!("{name}.3")];
    names.iter().map(|name| std::fs::read_to_string(directory.join(name)).unwrap()).collect()
}

pub(crate) fn recordings(name: &str) -> Vec<Recording> {
    texts(name).iter().map(|text| Recording::read(text.as_bytes()).unwrap()).collect()
}
