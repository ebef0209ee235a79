//! What is known of a scenario without running it, and how what was told is compared with what is to be told.

use cmid_conformance::{Check, DriverName, Failure};
use serde::{Deserialize, Serialize};

/// Which drivers a scenario runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drivers {
    /// io-epoll. What happens is the kernel's and the core's doing; one driver is enough to see it.
    Epoll,
    /// All three: it is cheap, or the driver has a part in it.
    All,
}

impl Drivers {
    /// The drivers.
    #[must_use]
    pub fn names(self) -> &'static [DriverName] {
        match self {
            Drivers::Epoll => &[DriverName::Epoll],
            Drivers::All => &DriverName::ALL,
        }
    }
}

/// When a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// Seconds.
    Fast,
    /// A minute or more: time-outs of the kernel run out.
    Slow,
}

/// A line of what an application is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// On every kernel.
    Always(&'static str),
    /// One of these; the reason why that is not decided stands beside them.
    OneOf(&'static [&'static str]),
    /// One of these on Linux 6.1, and one of these on Linux 6.12. Where there are none the line is not told.
    By {
        /// On the older.
        v6_1: &'static [&'static str],
        /// On the newer.
        v6_12: &'static [&'static str],
    },
}

impl Told {
    /// What it may be on a kernel. Nothing, if there is no such line.
    #[must_use]
    pub fn on(&self, kernel: &str) -> Vec<&'static str> {
        match self {
            Told::Always(line) => vec![line],
            Told::OneOf(lines) => lines.to_vec(),
            Told::By { v6_1, v6_12 } => if kernel == "6.1" { v6_1 } else { v6_12 }.to_vec(),
        }
    }

    /// What is to be told on a kernel, line by line: what each may be.
    #[must_use]
    pub fn all_on(observed: &[Told], kernel: &str) -> Vec<Vec<&'static str>> {
        observed.iter().map(|line| line.on(kernel)).filter(|allowed| !allowed.is_empty()).collect()
    }
}

/// What is known of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// The section of the table that it belongs to.
    pub group: &'static str,
    /// What goes wrong, and when.
    pub fault: &'static str,
    /// What the application is told, in this order.
    pub observed: &'static [Told],
    /// With which drivers it runs.
    pub drivers: Drivers,
    /// When it runs.
    pub speed: Speed,
    /// It is killed after so many seconds, and has failed then.
    pub bound: u64,
}

impl Entry {
    /// Whether the device is deleted in it. It goes only when every process has closed it.
    pub(crate) fn deletes_the_device(&self) -> bool {
        self.name.starts_with("device_gone")
    }

    /// Whether it makes PDs. Such a scenario runs while no device is deleted.
    pub(crate) fn makes_pds(&self) -> bool {
        ["The network", "The limit"].iter().any(|group| self.group.starts_with(group))
    }

    /// Whether it is about what a process has not opened yet.
    pub(crate) fn wants_a_fresh_process(&self) -> bool {
        ["no_descriptor_for_a_device", "no_descriptor_for_a_resolved_device"].contains(&self.name)
    }
}

/// Fails unless what was told is what is to be told.
///
/// # Errors
/// The first line that differs, and all that was told.
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

    const WANTED: &[Told] = &[
        Told::Always("client: ESTABLISHED"),
        Told::OneOf(&["server: DISCONNECTED", "server: REJECTED 28"]),
        Told::By { v6_1: &["old"], v6_12: &["new"] },
        Told::By { v6_1: &["and older"], v6_12: &[] },
    ];

    fn compared(observed: &[String], kernel: &str) -> Check {
        agree(&Told::all_on(WANTED, kernel), observed)
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
