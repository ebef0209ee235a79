//! The report, as JSON and as text.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::measure::Figures;
use crate::outcome::{Behaviour, Outcome};

/// The report of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of cmid.
    pub cmid: String,
    /// The machine.
    pub host: Host,
    /// The devices that were checked.
    pub devices: Vec<DeviceReport>,
    /// What the user can do about failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// Why nothing could be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The kernel's release (uname(2)).
    pub kernel: String,
    /// The architecture (uname(2)).
    pub machine: String,
    /// The distribution, from os-release(5).
    pub system: String,
    /// The files of libibverbs and librdmacm that are loaded; their names end with the version.
    pub libraries: Vec<String>,
    /// The limit of locked memory (`RLIMIT_MEMLOCK`) in bytes; `None` without a limit.
    pub memlock: Option<u64>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its name, or `sim`.
    pub name: String,
    /// The address of the client, and that of the server.
    pub addresses: [String; 2],
    /// Whether the server was another machine.
    pub two_hosts: bool,
    /// What the device and its driver are, and what they can do.
    pub properties: BTreeMap<String, String>,
    /// The behaviours.
    pub behaviours: Vec<Behaviour>,
    /// The measurements.
    pub figures: Figures,
    /// What rdma-core's programs measured on the same device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, String>,
}

impl Report {
    /// Whether a behaviour failed.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        let failed = |behaviour: &Behaviour| behaviour.outcome == Outcome::Fail;
        self.devices.iter().any(|device| device.behaviours.iter().any(failed) || !device.figures.errors.is_empty())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { kernel, machine, system, libraries, memlock } = &self.host;
        writeln!(f, "cmid-check {}: Linux {kernel} ({machine}), {system}", self.cmid)?;
        let limit = memlock.map_or_else(|| "none".to_owned(), |bytes| format!("{} KiB", bytes / 1024));
        writeln!(f, "libraries: {}; limit of locked memory: {limit}", list(libraries))?;
        self.devices.iter().try_for_each(|device| write!(f, "\n{device}"))?;
        self.hints.iter().try_for_each(|hint| writeln!(f, "\n{hint}"))
    }
}

fn list(items: &[String]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [client, server] = &self.addresses;
        writeln!(f, "{}: {client} to {server}{}", self.name, if self.two_hosts { ", on another machine" } else { "" })?;
        for (name, value) in &self.properties {
            writeln!(f, "  {name}: {value}")?;
        }
        self.behaviours.iter().try_for_each(|behaviour| writeln!(f, "  {behaviour}"))?;
        for (name, value) in self.figures.lines() {
            writeln!(f, "  {name}: {value}")?;
        }
        for error in &self.figures.errors {
            writeln!(f, "  not measured: {error}")?;
        }
        self.tools.iter().try_for_each(|(name, value)| writeln!(f, "  {name}: {value}"))
    }
}

impl Figures {
    /// The measurements with their units.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut ping = String::new();
        if let (Some(median), Some(p99)) = (self.ping_us, self.ping_p99_us) {
            let _ = write!(ping, "median {median:.1} us, 99 % within {p99:.1} us, {} bytes", self.ping_bytes);
        }
        let one = |value: Option<f64>, unit| value.map(|value| format!("{value:.0} {unit}")).unwrap_or_default();
        let lines = [
            ("ping, there and back", ping),
            ("post of an RDMA write", one(self.post_ns, "ns")),
            ("poll of a completion", one(self.poll_ns, "ns")),
            ("connections", one(self.connections_per_s, "per second")),
        ];
        lines.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}
