//! Parses bytes to lines. Input is untrusted: parsing returns lines, or an error with a line number.

use std::fmt;
use std::io::{BufRead, Read as _};

use cmid_proto::Limits;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::line::{Begin, FORMAT, Header, Input, Line, VERSION};

/// Maximum length of the first line in bytes. Those behind it may be longer: the line of the end names each id, channel and event.
const LINE_MAX: u64 = 16 << 20;
/// The bytes that the line of the end may have more for each of them. Most is private data, in hex.
pub(crate) const OBJECT_MAX: u64 = 2 << 10;

/// Maximum length of a line of a core with these limits.
fn line_max(limits: &Limits) -> u64 {
    let Limits { ids, channels, events, .. } = *limits;
    // An id also has an event in synchronous mode; a channel may exceed the limit on events by one.
    LINE_MAX + OBJECT_MAX * [ids, ids, channels, channels, events].map(u64::from).iter().sum::<u64>()
}

/// An error in a trace, or a difference between the trace and the core. Lines are counted from 1.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Wrong {
    /// Which one of the recordings of a [`replay`](crate::replay()), from 0; 0 if it was read.
    pub recording: usize,
    /// The line number.
    pub line: usize,
    /// The description.
    pub what: String,
}

impl Wrong {
    /// Escapes what is not printable: words of a trace are part of it, and a terminal would obey them.
    pub(crate) fn at(line: usize, what: impl AsRef<str>) -> Self {
        let shown = |it| if matches!(it, '"' | '\'' | '\\') { String::from(it) } else { it.escape_debug().to_string() };
        Wrong { recording: 0, line, what: what.as_ref().chars().map(shown).collect() }
    }
}

/// The text, because `main` prints it.
impl fmt::Debug for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A parsed trace. [`replay`](crate::replay()) verifies it.
#[derive(Clone, PartialEq, Eq)]
pub struct Recording {
    pub(crate) limits: Limits,
    /// The lines from the second one of the file on.
    pub(crate) lines: Vec<Line<'static>>,
}

/// Private data may be secret.
impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("lines", &self.lines()).finish_non_exhaustive()
    }
}

impl Recording {
    /// Reads a trace. A last line without a line feed is left out: a crash or a full disk has cut it off.
    ///
    /// # Errors
    /// At the first invalid line: garbled, of another format or version, or out of place. The first one may not be cut off.
    pub fn read(mut from: impl BufRead) -> Result<Self, Wrong> {
        let (first, is_cut_off) =
            next_line(&mut from, 1, LINE_MAX)?.ok_or_else(|| Wrong::at(1, "the trace is empty"))?;
        if is_cut_off {
            return Err(Wrong::at(1, "the line is cut off"));
        }
        let limits = limits(&first).map_err(|what| Wrong::at(1, what))?;
        let max = line_max(&limits);
        let mut lines: Vec<Line<'_>> = Vec::new();
        for number in 2.. {
            let Some((bytes, is_cut_off)) = next_line(&mut from, number, max)? else { break };
            if lines.last().is_some_and(|line| line.input == Input::End) {
                return Err(Wrong::at(number, "a line after the end of the trace"));
            }
            if is_cut_off {
                break;
            }
            lines.push(parse(&bytes).map_err(|what| Wrong::at(number, what))?);
        }
        Ok(Recording { limits, lines })
    }

    /// Whether the trace ends with the end of its drive. False if the program ended before its drive was dropped.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.lines.last().is_some_and(|line| line.input == Input::End)
    }

    /// The number of its core, which is in its keys: `s3/id0` is of core 3, `id0` of core 0. The lower 12 bits of
    /// [`Limits::core`].
    #[must_use]
    pub fn core(&self) -> u16 {
        self.limits.core.unwrap_or_default() & 0xfff
    }

    /// The number of lines.
    #[must_use]
    pub fn lines(&self) -> usize {
        1 + self.lines.len()
    }
}

/// The bytes of the next line, and whether the trace ends in it; `None` at the end.
fn next_line(from: &mut impl BufRead, number: usize, max: u64) -> Result<Option<(Vec<u8>, bool)>, Wrong> {
    let mut bytes = Vec::new();
    let read = from.by_ref().take(max).read_until(b'\n', &mut bytes);
    read.map_err(|error| Wrong::at(number, format!("the line cannot be read: {error}")))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let is_cut_off = bytes.last() != Some(&b'\n');
    if is_cut_off && bytes.len() as u64 == max {
        return Err(Wrong::at(number, "the line is too long"));
    }
    if !is_cut_off {
        bytes.pop();
    }
    Ok(Some((bytes, is_cut_off)))
}

/// The limits in the first line. What else is in a line of another version is not known here.
fn limits(line: &[u8]) -> Result<Limits, String> {
    let Header { begin: Begin { format, version, limits } } = parse::<Header<Value>>(line)?;
    if (format.as_str(), version) != (FORMAT, VERSION) {
        return Err(format!("{format} of version {version} is not {FORMAT} of version {VERSION}"));
    }
    serde_json::from_value(limits).map_err(|error| format!("limits: {error}"))
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    // serde_json parses one line at a time, so its own line number is always 1.
    serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        format!("column {}: {}", error.column(), text.split(" at line ").next().unwrap_or_default())
    })
}
