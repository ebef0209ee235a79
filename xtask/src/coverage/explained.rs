//! Why some lines are not run. Lines are known by their text, so that the list does not rot with every change.
//!
//! ```text
//! : reason
//! in machine/listen.rs
//! the line
//! another line
//! ```
//!
//! Each explains one line: where a file has the same text twice, and neither is run, the list has it twice.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

pub(crate) const FILE: &str = "xtask/src/coverage/explained.txt";

/// The list, and which of it was of use.
#[derive(Debug)]
pub(crate) struct Explained {
    lines: BTreeMap<(PathBuf, String), Uses>,
}

/// How many lines of one text there may be, and how many there were.
#[derive(Debug, Default)]
struct Uses {
    listed: usize,
    used: usize,
}

impl Explained {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        Self::parse(&fs::read_to_string(root.join(FILE)).context(FILE)?).context(FILE)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut lines: BTreeMap<_, Uses> = BTreeMap::new();
        for entry in text.split("\n\n").map(|entry| entry.trim_matches('\n')).filter(|entry| !entry.is_empty()) {
            let mut file: Option<&str> = None;
            let mut of_entry = entry.lines();
            let reason =
                of_entry.next().and_then(|line| line.strip_prefix(": ")).filter(|reason| !reason.trim().is_empty());
            ensure!(reason.is_some(), "no reason: {entry}");
            for line in of_entry {
                if let Some(name) = line.strip_prefix("in ") {
                    file = Some(name);
                } else {
                    let file = file.with_context(|| format!("a line of no file: {line}"))?;
                    lines.entry((PathBuf::from(file), line.trim().to_owned())).or_default().listed += 1;
                }
            }
        }
        Ok(Explained { lines })
    }

    /// Whether a line that is not run stands in the list.
    pub(crate) fn explains(&mut self, file: &Path, text: &str) -> bool {
        let entry = self.lines.get_mut(&(file.to_owned(), text.to_owned())).filter(|uses| uses.used < uses.listed);
        entry.map(|uses| uses.used += 1).is_some()
    }

    /// How many lines were explained.
    pub(crate) fn used(&self) -> usize {
        self.lines.values().map(|uses| uses.used).sum()
    }

    /// What explains nothing.
    pub(crate) fn stale(&self) -> Vec<String> {
        let unused = self.lines.iter().filter(|(_, uses)| uses.used < uses.listed);
        unused.map(|((file, text), _)| format!("{}: {text}", file.display())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_is_for_a_file_and_a_text_and_may_be_stale() {
        let mut list = Explained::parse(": because\nin a.rs\nx();\nin b.rs\n  y();\n\n: so\nin a.rs\nz();\n").unwrap();
        assert!(list.explains(Path::new("a.rs"), "x();"));
        assert!(!list.explains(Path::new("a.rs"), "x();"), "a second line of that text");
        assert!(!list.explains(Path::new("b.rs"), "x();"));
        assert!(list.explains(Path::new("b.rs"), "y();"));
        assert_eq!((list.used(), list.stale()), (2, vec!["a.rs: z();".to_owned()]));
    }

    #[test]
    fn every_explanation_has_a_reason_and_a_file() {
        for text in ["in a.rs\nx();", ": \nin a.rs\nx();", ": why\nx();"] {
            assert!(Explained::parse(text).is_err(), "{text}");
        }
    }
}
