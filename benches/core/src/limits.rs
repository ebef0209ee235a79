//! The table of targets and limits.
//!
//! A target is a goal of the project. A limit is the value reached, with [a little room](ROOM) for another version of
//! the compiler. `cargo xtask step "what the core costs"` fails beyond a limit, and prints each value with its room.

use Figure::{Beyond, Case};

/// How a row's figure is calculated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The instructions of a case.
    Case,
    /// The instructions of a case minus those of another.
    Beyond(&'static str),
}

/// A line of the table, in instructions.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The case.
    pub case: &'static str,
    /// Its description.
    pub what: &'static str,
    /// Its figure.
    pub figure: Figure,
    /// The targets for the core and through `Drive`.
    pub targets: [Option<u64>; 2],
    /// The limits for the core, and through `Drive`.
    pub limits: [u64; 2],
    /// The largest number of ids for which target and limit apply.
    pub up_to: usize,
    /// By how many per cent the worst of the sizes may exceed the best, if limited.
    pub spread: Option<u64>,
}

/// The goal for the spread from 10 to 1,000,000 ids, in per cent.
pub const FLAT: u64 = 10;

/// How far a limit is above the count, in per cent.
pub const ROOM: u64 = 3;

/// How far a limit is above the count at least, in instructions: builds in two folders differ in what the compiler inlines.
pub const ROOM_AT_LEAST: u64 = 12;

/// Instructions.
#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    row("event", "an event in, out, acked", [Some(150), Some(270)], [177, 402]),
    row("event_edge", "an event by an edge-triggered poller, and the read that finds no more", [None, Some(330)], [212, 573]),
    row("event_with_data", "an event in, out, acked: 196 bytes, ends a deadline", [None, None], [343, 575]),
    row("request", "a request, its call, its outcome", [Some(80), None], [137, 254]),
    row("request_with_data", "a request, its call, its outcome: 56 bytes, a deadline", [None, None], [239, 359]),
    row("active_life", "an active life, create to destroy", [Some(2000), None], [2573, 4749]),
    row("passive_life", "a passive life, request to destroy", [Some(1750), None], [2440, 3880]),
    row("nothing_to_do", "a poll for everything: there is nothing to do", [Some(30), None], [77, 111]),
    row("migrate_0", "a migration without events", [Some(300), None], [606, 672]),
    row("migrate_64", "a migration with 64 events among 192 (core), unread ones (drive)", [Some(2860), None], [9751, 672]),
    heap("arm_first", "a deadline armed before all others", Beyond("arm_none"), Some(404), [410, 399]),
    heap("cancel_first", "a deadline dropped that is before all others", Beyond("cancel_none"), None, [534, 551]),
    heap("fire", "a deadline expires and its event is stored", Case, None, [800, 856]),
];

/// The allocations of a step once its tables have grown.
pub const ALLOCATIONS: usize = 0;

const fn row(case: &'static str, what: &'static str, targets: [Option<u64>; 2], limits: [u64; 2]) -> Row {
    Row { case, what, figure: Case, targets, limits, up_to: usize::MAX, spread: Some(FLAT) }
}

/// The operations of a heap take longer the larger it is.
const fn heap(case: &'static str, what: &'static str, figure: Figure, target: Option<u64>, limits: [u64; 2]) -> Row {
    Row { case, what, figure, targets: [target, None], limits, up_to: 100_000, spread: None }
}

/// A kind of object that may be numerous, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Its name in [`crate::memory`].
    pub name: &'static str,
    /// Its description.
    pub what: &'static str,
    /// The target.
    pub target: Option<u64>,
    /// The limit.
    pub limit: u64,
}

/// Bytes. Exact: these limits have no room. A key is one integer of 8 bytes, so that one comparison validates it. Its
/// alignment adds 8 bytes to an id and to an event.
#[rustfmt::skip]
pub const OBJECTS: &[Object] = &[
    object("id", "an idle id", Some(151), 101),
    object("deadline", "the deadline of an id", None, 17),
    object("channel", "an event channel", None, 135),
    object("event", "an undelivered event", None, 59),
    object("event_with_data", "an undelivered event with 196 bytes", None, 336),
    object("membership", "a membership in a multicast group", None, 76),
    object("domain", "a PD (`Domain`)", None, 8),
    object("region", "an MR (`Region`), without what it keeps for others: handles, PDs, buffers", None, 64),
];

const fn object(name: &'static str, what: &'static str, target: Option<u64>, limit: u64) -> Object {
    Object { name, what, target, limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_case_and_stands_once() {
        let cases: Vec<_> = ROWS.iter().map(|row| row.case).collect();
        for (at, case) in cases.iter().enumerate() {
            assert!(crate::counting::CASES.contains(case) && !cases[..at].contains(case), "{case}");
        }
    }
}
