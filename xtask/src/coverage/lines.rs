//! From regions, which the compiler counts, to lines.

use std::collections::BTreeMap;

use llvm_profparser::SourceLocation;

/// One file: its regions, and whether each of its lines with code is run.
#[derive(Debug)]
pub(crate) struct File {
    regions: [usize; 2],
    lines: BTreeMap<usize, (bool, String)>,
}

/// A line that is not run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) number: usize,
    /// Without its indentation.
    pub(crate) text: &'a str,
}

impl File {
    /// Of a text, and of which of its regions were run.
    pub(crate) fn new(text: &str, regions: Vec<(SourceLocation, bool)>) -> Self {
        let mut lines = BTreeMap::new();
        for (number, text) in (1..).zip(text.lines()) {
            if let Some(run) = is_run(number, &regions) {
                lines.insert(number, (run, text.trim().to_owned()));
            }
        }
        let run = regions.iter().filter(|(_, run)| *run).count();
        File { regions: [run, regions.len()], lines }
    }

    /// Lines that are run, lines, regions that are run, regions.
    pub(crate) fn figures(&self) -> [usize; 4] {
        let run = self.lines.values().filter(|(run, _)| *run).count();
        [run, self.lines.len(), self.regions[0], self.regions[1]]
    }

    /// The lines that are not run, without those of brackets only.
    pub(crate) fn not_run(&self) -> impl Iterator<Item = Line<'_>> {
        let lines = self.lines.iter().filter(|(_, (run, text))| !run && text.contains(char::is_alphanumeric));
        lines.map(|(&number, (_, text))| Line { number, text })
    }
}

/// `None` for a line without code. As `llvm-cov` has it: a line is run if what reaches into it is, or what begins in it.
fn is_run(line: usize, regions: &[(SourceLocation, bool)]) -> Option<bool> {
    // Regions are nested: the innermost begins last, and of those that begin together ends first.
    let around = regions.iter().filter(|(at, _)| at.line_start < line && line <= at.line_end);
    let innermost = around.max_by_key(|(at, _)| {
        let end = core::cmp::Reverse((at.line_end, at.column_end));
        (at.line_start, at.column_start, end)
    });
    let beginning = regions.iter().filter(|(at, _)| at.line_start == line);
    innermost.into_iter().chain(beginning).map(|&(_, run)| run).reduce(|a, b| a || b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(from: (usize, usize), to: (usize, usize), run: bool) -> (SourceLocation, bool) {
        let at = SourceLocation { line_start: from.0, column_start: from.1, line_end: to.0, column_end: to.1 };
        (at, run)
    }

    #[test]
    fn a_line_is_run_if_what_reaches_into_it_or_begins_in_it_is() {
        let text = "fn a() {\n    if x {\n        y();\n    }\n    z();\n}\n\n";
        let regions = vec![region((1, 1), (6, 2), true), region((2, 10), (4, 6), false)];
        let file = File::new(text, regions);
        assert_eq!(file.figures(), [4, 6, 1, 2]);
        assert_eq!(file.not_run().collect::<Vec<_>>(), [Line { number: 3, text: "y();" }]);
    }
}
