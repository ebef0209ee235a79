//! Parses bytes to lines. Input is untrusted: parsing returns lines, or an error with a line number.

use std::io::{BufRead, Read as _};

use cmid_proto::Limits;

use crate::line::{FORMAT, Line};

/// Maximum length of a line in bytes. The end line of a core with tens of thousands of ids is shorter.
const LINE_MAX: u64 = 16 << 20;

/// An error in a trace, or a difference between the trace and the core. Lines are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Wrong {
    /// The line number.
    pub line: usize,
    /// The description.
    pub what: String,
}

impl Wrong {
    pub(crate) fn at(line: usize, what: impl Into<String>) -> Self {
        Wrong { line, what: what.into() }
    }
}

/// A parsed trace. [`Replay`](crate::Replay) verifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    pub(crate) limits: Limits,
    /// The lines from the second one of the file on.
    pub(crate) lines: Vec<Line>,
}

impl Recording {
    /// Reads a trace.
    ///
    /// # Errors
    /// At the first invalid line: cut off, garbled, of another format or version, or out of place.
    pub fn read(mut from: impl BufRead) -> Result<Self, Wrong> {
        let mut lines = Vec::new();
        let mut limits = None;
        for number in 1.. {
            let Some(line) = next_line(&mut from, number)? else { break };
            match (line, limits, lines.last()) {
                (_, _, Some(Line::End(_))) => return Err(Wrong::at(number, "a line after the end of the trace")),
                (Line::Begin { format, version, limits: bounds }, None, _) => {
                    if (format.as_str(), version) != FORMAT {
                        let (format, version) = (format.escape_debug(), version);
                        let ours = format!("{} of version {}", FORMAT.0, FORMAT.1);
                        return Err(Wrong::at(number, format!("{format} of version {version} is not {ours}")));
                    }
                    limits = Some(bounds.into());
                }
                (Line::Begin { .. }, Some(_), _) => return Err(Wrong::at(number, "the trace begins twice")),
                (_, None, _) => return Err(Wrong::at(number, "a trace begins with \"begin\"")),
                (line, Some(_), _) => lines.push(line),
            }
        }
        let limits = limits.ok_or_else(|| Wrong::at(1, "the trace is empty"))?;
        Ok(Recording { limits, lines })
    }

    /// Whether the trace ends with the end of its drive. False if the program ended before its drive was dropped.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self.lines.last(), Some(Line::End(_)))
    }

    /// The number of lines.
    #[must_use]
    pub fn lines(&self) -> usize {
        1 + self.lines.len()
    }
}

fn next_line(from: &mut impl BufRead, number: usize) -> Result<Option<Line>, Wrong> {
    let mut bytes = Vec::new();
    let read = from.by_ref().take(LINE_MAX).read_until(b'\n', &mut bytes);
    read.map_err(|error| Wrong::at(number, format!("the line cannot be read: {error}")))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.pop() != Some(b'\n') {
        let what = if bytes.len() as u64 + 1 == LINE_MAX { "the line is too long" } else { "the line is cut off" };
        return Err(Wrong::at(number, what));
    }
    // serde_json parses one line at a time, so its own line number is always 1.
    let wrong = |error: serde_json::Error| {
        let text = error.to_string();
        let text = text.split(" at line ").next().unwrap_or_default().to_owned();
        Wrong::at(number, format!("column {}: {text}", error.column()))
    };
    serde_json::from_slice(&bytes).map(Some).map_err(wrong)
}
