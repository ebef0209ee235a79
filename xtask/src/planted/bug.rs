//! Bugs as text: what to find in a file and what to put there instead.
//!
//! ```text
//! @ ack-counts-twice: an ack is counted twice
//! in proto/src/machine/deliver.rs
//! -        owner.owed -= 1;
//! +        owner.owed = owner.owed.saturating_sub(2);
//! ```
//!
//! As in a patch, lines with a blank in front stay; but there are no line numbers: the lines that stay or go stand together
//! exactly once in the file. So what the code has become is noticed, and where it has moved to is not.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

/// Where the bugs are.
const FOLDER: &str = "planted";

/// One bug.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bug {
    /// The file of bugs that it stands in, without its ending.
    pub(crate) kind: String,
    pub(crate) name: String,
    /// What is wrong with it, in words.
    pub(crate) text: String,
    /// The file to plant it in.
    pub(crate) file: String,
    old: String,
    new: String,
}

impl Bug {
    /// The file with the bug in it.
    pub(crate) fn plant(&self, source: &str) -> Result<String> {
        // Only whole lines are meant.
        let at: Vec<_> =
            source.match_indices(&self.old).map(|(at, _)| at).filter(|&at| starts_a_line(source, at)).collect();
        match at[..] {
            [at] => Ok([&source[..at], &self.new, &source[at + self.old.len()..]].concat()),
            [] => bail!("{}: {} has no such lines any more:\n{}", self.name, self.file, self.old),
            _ => bail!("{}: {} has such lines {} times:\n{}", self.name, self.file, at.len(), self.old),
        }
    }
}

fn starts_a_line(source: &str, at: usize) -> bool {
    at == 0 || source[..at].ends_with('\n')
}

/// All bugs, by file and in the order in which they stand there.
pub(crate) fn all(root: &Path) -> Result<Vec<Bug>> {
    let folder = root.join(FOLDER);
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "bugs") {
            files.push(path);
        }
    }
    files.sort();
    let mut bugs = Vec::new();
    for file in files {
        let kind = file.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        bugs.extend(parse(&kind, &text).with_context(|| file.display().to_string())?);
    }
    let mut names = BTreeSet::new();
    for bug in &bugs {
        ensure!(names.insert(&bug.name), "two bugs are called {}", bug.name);
    }
    Ok(bugs)
}

fn parse(kind: &str, text: &str) -> Result<Vec<Bug>> {
    let entries = text.split("\n\n").map(|entry| entry.trim_matches('\n')).filter(|entry| !entry.is_empty());
    entries.map(|entry| one(kind, entry).with_context(|| entry.to_owned())).collect()
}

fn one(kind: &str, entry: &str) -> Result<Bug> {
    let mut lines = entry.lines();
    let head = lines.next().and_then(|line| line.strip_prefix("@ ")).context("no line with \"@ \"")?;
    let (name, text) = head.split_once(": ").context("a name, a colon, and what is wrong")?;
    let file = lines.next().and_then(|line| line.strip_prefix("in ")).context("no line with \"in \"")?;
    let (mut old, mut new) = (String::new(), String::new());
    for line in lines {
        let (mark, rest) = line.split_at_checked(1).context("an empty line")?;
        for side in match mark {
            " " => [Some(&mut old), Some(&mut new)],
            "-" => [Some(&mut old), None],
            "+" => [None, Some(&mut new)],
            _ => bail!("a line without a mark: {line}"),
        } {
            side.into_iter().for_each(|side| side.extend([rest, "\n"]));
        }
    }
    ensure!(!old.is_empty() && old != new, "it changes nothing");
    let [kind, name, text, file] = [kind, name, text, file].map(str::to_owned);
    Ok(Bug { kind, name, text, file, old, new })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "@ name: what is wrong\nin a/b.rs\n same\n-old\n+new\n\n@ other: it\nin c.rs\n-    x\n";

    #[test]
    fn a_bug_is_planted_where_its_lines_stand_once() {
        let bugs = parse("kind", TEXT).unwrap();
        assert_eq!((bugs.len(), bugs[0].name.as_str(), bugs[0].file.as_str()), (2, "name", "a/b.rs"));
        assert_eq!(bugs[0].plant("1\nsame\nold\n2\n").unwrap(), "1\nsame\nnew\n2\n");
        assert_eq!(bugs[1].plant("    x\n").unwrap(), "");
        assert!(bugs[0].plant("same\nolder\n").is_err());
        assert!(bugs[0].plant("same\nold\nsame\nold\n").is_err());
        // Not in the middle of a line.
        assert!(bugs[1].plant("y    x\n").is_err());
    }

    #[test]
    fn what_is_no_bug_is_an_error() {
        for text in ["name: x\nin a\n-b", "@ name\nin a\n-b", "@ n: x\n-b", "@ n: x\nin a\n b", "@ n: x\nin a\nb"] {
            assert!(parse("kind", text).is_err(), "{text}");
        }
    }
}
