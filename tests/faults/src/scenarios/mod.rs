//! The scenarios. Each consists of the fault, the expected lines and the steps.

mod address;
mod descriptors;
mod device;
mod killed;
mod link;
mod locked;
mod lost;
mod network;

use std::sync::LazyLock;

use cmid_harness::Env;

use crate::{Entry, Scenario};

/// Defines a module's `ENTRIES` and `steps`. A scenario is
/// `name [drivers speed bound] "what goes wrong" => [what is observed] |fixture| { steps }`.
macro_rules! faults {
    ($group:literal; $($name:ident [$drivers:ident $speed:ident $bound:literal] $fault:literal
        => [$($observed:expr),* $(,)?] |$fixture:ident| $steps:block)+) => {
        pub(super) const ENTRIES: &[$crate::Entry] = &[$(
            $crate::Entry {
                name: stringify!($name),
                group: $group,
                fault: $fault,
                observed: &[$($observed),*],
                drivers: $crate::Drivers::$drivers,
                speed: cmid_harness::Speed::$speed,
                bound: $bound,
            },
        )+];

        pub(super) fn steps<L: cmid_harness::Env>() -> Vec<$crate::scenario::Steps<L>> {
            vec![$(|$fixture: &mut $crate::FaultFixture<'_, L>| -> cmid_harness::Check { $steps },)+]
        }
    };
}
use faults;

macro_rules! modules {
    ($($module:ident),+) => {
        static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| [$($module::ENTRIES),+].concat());

        /// All scenarios, in the order of the table.
        #[must_use]
        pub fn scenarios<L: Env>() -> Vec<Scenario<L>> {
            let steps = [$($module::steps::<L>()),+].concat();
            entries().iter().zip(steps).map(|(&entry, steps)| Scenario { entry, steps }).collect()
        }
    };
}

modules!(lost, network, link, address, device, killed, descriptors, locked);

/// The descriptions of all scenarios, in the order of the table.
#[must_use]
pub fn entries() -> &'static [Entry] {
    &ENTRIES
}

/// The sections of the table, in order.
#[must_use]
pub fn groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = entries().iter().map(|entry| entry.group).collect();
    groups.dedup();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_scenarios_are_complete() {
        let mut names: Vec<_> = entries().iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), entries().len());
        for entry in entries() {
            assert!(!entry.observed.is_empty(), "{} lists no observations", entry.name);
            assert!(entry.bound <= 300, "{} may take too long", entry.name);
        }
    }

    #[test]
    fn a_section_is_in_one_piece() {
        let mut groups = groups();
        let count = groups.len();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups.len(), count);
    }
}
