//! The description of a scenario, and the comparison of observed lines with expected lines.

use cmid_harness::{Check, DriverName, Failure, Speed};

/// Which drivers a scenario runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drivers {
    /// io-epoll only. The behaviour is that of the kernel and of the core, so one driver is enough.
    Epoll,
    /// All three. The scenario is cheap, or the driver takes part in the behaviour.
    All,
}

impl Drivers {
    /// The drivers.
    #[must_use]
    pub fn names(self) -> &'static [DriverName] {
        match self {
            Drivers::Epoll => &[DriverName::Epoll],
            Drivers::All => &DriverName::PLAIN,
        }
    }
}

/// Expected lines: each is an event or the result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// These, one after the other, on every kernel.
    Always(&'static [&'static str]),
    /// One of these. The reason why the result varies stands beside the list.
    OneOf(&'static [&'static str]),
    /// One of the first list on Linux 6.1, one of the second on Linux 6.12. An empty list: the line does not occur.
    By {
        /// The allowed lines on Linux 6.1.
        v6_1: &'static [&'static str],
        /// The allowed lines on Linux 6.12.
        v6_12: &'static [&'static str],
    },
    /// The one over librdmacm, the other on the kernel backend.
    Backend {
        /// The line over librdmacm.
        librdmacm: &'static str,
        /// The line on the kernel backend.
        kernel: &'static str,
    },
}

/// `6.1` of `Linux 6.1.0-56-amd64, soft-RoCE, kernel`.
fn version(environment: &str) -> String {
    let release = environment.trim_start_matches("Linux ").split(',').next().unwrap_or_default();
    release.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Whether this is an environment of the kernel backend.
fn on_kernel_backend(environment: &str) -> bool {
    environment.ends_with(", kernel")
}

impl Expected {
    /// The lines in an environment: the kernel's release and the backend, as in a report. For each, the allowed texts.
    fn on(&self, environment: &str) -> Vec<Vec<&'static str>> {
        let one = |allowed: &[&'static str]| if allowed.is_empty() { vec![] } else { vec![allowed.to_vec()] };
        match self {
            Expected::Always(lines) => lines.iter().map(|&line| vec![line]).collect(),
            Expected::OneOf(lines) => one(lines),
            Expected::Backend { librdmacm, kernel } => {
                one(&[if on_kernel_backend(environment) { kernel } else { librdmacm }])
            }
            Expected::By { v6_1, v6_12 } => one(if version(environment) == "6.1" { v6_1 } else { v6_12 }),
        }
    }

    /// The expected lines in an environment: for each, the allowed texts.
    #[must_use]
    pub fn all_on(observed: &[Expected], environment: &str) -> Vec<Vec<&'static str>> {
        observed.iter().flat_map(|lines| lines.on(environment)).collect()
    }
}

/// The description of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Its section in the generated table.
    pub group: &'static str,
    /// The fault, and when it is injected.
    pub fault: &'static str,
    /// The expected lines, in order.
    pub observed: &'static [Expected],
    /// The drivers that it runs with.
    pub drivers: Drivers,
    /// The programme that it belongs to.
    pub speed: Speed,
    /// Its time limit in seconds. A scenario that exceeds it is killed and has failed.
    pub bound: u64,
}

impl Entry {
    /// Whether the scenario deletes the device. The kernel removes a device only when every process has closed it.
    pub(crate) fn deletes_the_device(&self) -> bool {
        self.name.starts_with("device_gone")
    }

    /// Whether the scenario makes PDs. Such a scenario does not run while a device is being deleted.
    pub(crate) fn makes_pds(&self) -> bool {
        ["The network", "The limit"].iter().any(|group| self.group.starts_with(group))
    }

    /// Whether the scenario needs a process that has not opened a device yet.
    pub(crate) fn wants_a_fresh_process(&self) -> bool {
        ["no_descriptor_for_a_device", "no_descriptor_for_a_resolved_device"].contains(&self.name)
    }
}

/// Compares the observed lines with the expected lines.
///
/// # Errors
/// The first line that differs, and all observed lines.
pub fn agree(wanted: &[Vec<&str>], observed: &[String]) -> Check {
    let differ = |at: usize| -> Option<String> {
        let (wanted, observed) = (wanted.get(at), observed.get(at).map(String::as_str));
        match (wanted, observed) {
            (Some(wanted), Some(observed)) if wanted.contains(&observed) => None,
            (None, None) => None,
            (wanted, observed) => Some(format!(
                "line {}: {}, expected {}",
                at + 1,
                observed.unwrap_or("nothing more"),
                wanted.map_or_else(|| "nothing more".to_owned(), |lines| lines.join(", or "))
            )),
        }
    };
    match (0..wanted.len().max(observed.len())).find_map(differ) {
        None => Ok(()),
        Some(difference) => {
            let all: String = observed.iter().map(|line| format!("\n    {line}")).collect();
            Err(Failure(format!("{difference}; all of it:{all}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: &[Expected] = &[
        Expected::Always(&["client: ESTABLISHED"]),
        Expected::OneOf(&["server: DISCONNECTED", "server: REJECTED 28"]),
        Expected::By { v6_1: &["old"], v6_12: &["new"] },
        Expected::By { v6_1: &["and older"], v6_12: &[] },
    ];

    fn compared(observed: &[String], kernel: &str) -> Check {
        agree(&Expected::all_on(WANTED, kernel), observed)
    }

    fn lines(lines: [&str; 3]) -> Vec<String> {
        lines.map(str::to_owned).to_vec()
    }

    #[test]
    fn every_line_must_be_one_that_is_allowed_there() {
        let observed = lines(["client: ESTABLISHED", "server: REJECTED 28", "new"]);
        assert_eq!(compared(&observed, "6.12"), Ok(()));
        assert!(compared(&observed, "6.1").unwrap_err().0.starts_with("line 3: new, expected old"));
        let other = lines(["client: ESTABLISHED", "server: nothing", "new"]);
        assert!(compared(&other, "6.12").is_err());
    }

    #[test]
    fn a_line_may_depend_on_the_backend() {
        let line = Expected::Backend { librdmacm: "one", kernel: "other" };
        assert_eq!(line.on("Linux 6.12.1-amd64, soft-RoCE, librdmacm"), [["one"]]);
        assert_eq!(line.on("Linux 6.12.1-amd64, soft-RoCE, kernel"), [["other"]]);
        assert_eq!(version("Linux 6.1.0-56-amd64, soft-RoCE, kernel"), "6.1");
        assert_eq!(version("6.12"), "6.12");
    }

    #[test]
    fn a_line_too_few_or_too_many_is_a_difference() {
        let mut observed = lines(["client: ESTABLISHED", "server: DISCONNECTED", "new"]);
        observed.push("server: DISCONNECTED".into());
        assert!(compared(&observed, "6.12").unwrap_err().0.contains("expected nothing more"));
        observed.truncate(2);
        assert!(compared(&observed, "6.12").unwrap_err().0.contains("nothing more, expected new"));
    }

    #[test]
    fn a_line_of_one_kernel_only_is_told_there_and_nowhere_else() {
        let mut observed = lines(["client: ESTABLISHED", "server: DISCONNECTED", "old"]);
        assert!(compared(&observed, "6.1").unwrap_err().0.contains("nothing more, expected and older"));
        observed.push("and older".into());
        assert_eq!(compared(&observed, "6.1"), Ok(()));
    }
}
