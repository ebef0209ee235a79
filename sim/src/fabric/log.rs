//! What has happened in a fabric, for reports.

use std::fmt::{self, Write as _};

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
    /// The numbers of cores in the texts, in the order of their appearance.
    cores: Vec<String>,
    pub(crate) left_out: usize,
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
            let text = log.with_own_numbers(&text());
            log.entries.push(Entry { at, from, to, text, is_lost });
        } else {
            log.left_out += 1;
        }
    }
}

impl Log {
    /// Numbers the cores of a text, `s11` of `s11/ch0`, as they have appeared in this log: the numbers of the process depend
    /// on its other worlds.
    fn with_own_numbers(&mut self, mut rest: &str) -> String {
        let mut text = String::with_capacity(rest.len());
        while let Some((head, tail)) = rest.split_once('/') {
            let before = head.trim_end_matches(|it: char| it.is_ascii_digit());
            let core = &head[before.len()..];
            match before.strip_suffix('s').filter(|_| !core.is_empty()) {
                Some(before) => {
                    let known = self.cores.iter().position(|known| known == core);
                    let number = known.unwrap_or_else(|| {
                        self.cores.push(core.to_owned());
                        self.cores.len() - 1
                    });
                    let _ = write!(text, "{before}s{number}/");
                }
                None => text.extend([head, "/"]),
            }
            rest = tail;
        }
        text + rest
    }

    /// Writes one line per entry, with the names of the hosts.
    pub(crate) fn lines(&self, name: impl Fn(HostNo) -> String) -> String {
        let mut lines = String::new();
        for Entry { at, from, to, text, is_lost } in &self.entries {
            let way = Way { from: name(*from), to: (from != to).then(|| name(*to)), is_lost: *is_lost };
            let _ = writeln!(lines, "{at}  {way}: {text}");
        }
        if self.left_out > 0 {
            let _ = writeln!(lines, "and {} more", self.left_out);
        }
        lines
    }
}

struct Way {
    from: String,
    to: Option<String>,
    is_lost: bool,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            None => write!(f, "{}{}", self.from, if self.is_lost { " -x" } else { "" }),
            Some(to) => write!(f, "{} -{} {to}", self.from, if self.is_lost { "x" } else { ">" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_does_not_depend_on_the_other_cores_of_the_process() {
        let mut log = Log::default();
        assert_eq!(log.with_own_numbers("Migrate { id: s12/id3, to: s7/ch0 }"), "Migrate { id: s0/id3, to: s1/ch0 }");
        assert_eq!(log.with_own_numbers("s/ of 10.0.0.1/24 at s7/id9 at s4"), "s/ of 10.0.0.1/24 at s1/id9 at s4");
    }
}
