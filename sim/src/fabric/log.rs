//! What has happened in a fabric, for reports.

use std::fmt::Write as _;

use cmid_proto::Time;

use crate::fabric::world::World;
use crate::index::HostNo;

/// The maximum number of entries. Later ones are counted.
const MOST: usize = 50_000;

/// Something that has happened at a host, or has come to it from another one.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) at: Time,
    /// Where it began: the sender of a message.
    pub(crate) from: HostNo,
    pub(crate) to: HostNo,
    pub(crate) text: String,
    /// Whether a message did not arrive.
    pub(crate) is_lost: bool,
}

/// The log of a fabric.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) entries: Vec<Entry>,
    pub(crate) left_out: usize,
    /// When and how the test has failed.
    pub(crate) failed: Option<(Time, String)>,
}

impl World {
    /// Logs something that has happened at a host, if there is a log.
    pub(crate) fn note(&mut self, at: HostNo, text: impl FnOnce() -> String) {
        self.log(at, at, false, text);
    }

    /// Logs a message.
    pub(crate) fn log(&mut self, from: HostNo, to: HostNo, is_lost: bool, text: impl FnOnce() -> String) {
        let at = self.now;
        let Some(log) = &mut self.log else { return };
        if log.entries.len() < MOST {
            log.entries.push(Entry { at, from, to, text: without_cores(&text()), is_lost });
        } else {
            log.left_out += 1;
        }
    }
}

impl Log {
    /// Writes one line per entry, with the names of the hosts.
    pub(crate) fn lines(&self, name: impl Fn(HostNo) -> String) -> String {
        let mut lines = String::new();
        for Entry { at, from, to, text, is_lost } in &self.entries {
            let way = match (from == to, is_lost) {
                (true, false) => name(*from),
                (true, true) => name(*from) + " -x",
                (false, false) => name(*from) + " -> " + &name(*to),
                (false, true) => name(*from) + " -x " + &name(*to),
            };
            let _ = writeln!(lines, "{at}  {way}: {text}");
        }
        if self.left_out > 0 {
            let _ = writeln!(lines, "and {} more", self.left_out);
        }
        if let Some((at, message)) = &self.failed {
            let _ = writeln!(lines, "{at}  failed: {message}");
        }
        lines
    }
}

/// Leaves out the number of a core, `s11/` of `s11/ch0`: it counts those of the process, not of the world.
fn without_cores(mut rest: &str) -> String {
    let mut text = String::with_capacity(rest.len());
    while let Some((head, tail)) = rest.split_once('/') {
        let before = head.trim_end_matches(|it: char| it.is_ascii_digit());
        match before.strip_suffix('s').filter(|_| before.len() < head.len()) {
            Some(before) => text += before,
            None => text.extend([head, "/"]),
        }
        rest = tail;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_does_not_depend_on_the_other_cores_of_the_process() {
        assert_eq!(without_cores("Migrate { id: s12/id3, to: s7/ch0 }"), "Migrate { id: id3, to: ch0 }");
        assert_eq!(without_cores("s/ of 10.0.0.1/24 at s4"), "s/ of 10.0.0.1/24 at s4");
    }
}
