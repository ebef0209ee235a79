//! Watches the guest's console for a kernel that failed.

use crate::error::{Error, WithPath};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The number of lines of the console that an error quotes.
const QUOTED_LINES: usize = 60;

/// The prefix of the last message of the guest's init.
const FATAL: &str = "softroce: fatal: ";

/// Signs of a kernel failure, as printed by Debian's kernels. "blocked for more" is a hung task.
const FAILURES: &[&str] =
    &["Kernel panic", "BUG: ", "Oops", "blocked for more", "general protection fault", "kernel BUG at"];
/// Signs of trouble that the command need not have caused: a slow host causes stalls.
const WARNINGS: &[&str] = &["WARNING: ", "detected stall", "self-detected"];

/// The meaning of a line of the console.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Alert {
    /// The guest's init gave up, for this reason.
    Setup(String),
    /// The kernel failed. Holds the line of the failure.
    Kernel(String),
}

/// The console's file, read as it grows.
pub(crate) struct Console {
    file: File,
    path: PathBuf,
    scan: Scan,
}

impl Console {
    /// Opens the file, which QEMU truncates and fills.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        Ok(Console { file: File::open(path).about_file(path)?, path: path.to_owned(), scan: Scan::default() })
    }

    /// Reads new lines. Returns the first alert since the start.
    pub(crate) fn alarm(&mut self) -> Result<Option<&Alert>, Error> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).about_file(&self.path)?;
        self.scan.take(&bytes);
        Ok(self.scan.alarm.as_ref())
    }

    /// The kernel's warnings.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.scan.warnings
    }

    /// The last lines of the console.
    pub(crate) fn tail(&self) -> String {
        // A console that cannot be read must not hide the error that quotes it.
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        lines.get(lines.len().saturating_sub(QUOTED_LINES)..).unwrap_or_default().join("\n")
    }
}

#[derive(Debug, Default)]
struct Scan {
    /// An incomplete line.
    line: Vec<u8>,
    alarm: Option<Alert>,
    warnings: Vec<String>,
}

impl Scan {
    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.judge(String::from_utf8_lossy(&line).trim_end());
            } else {
                self.line.push(*byte);
            }
        }
    }

    fn judge(&mut self, line: &str) {
        let has = |signs: &[&str]| signs.iter().any(|sign| line.contains(sign));
        if has(FAILURES) {
            self.alarm.get_or_insert_with(|| Alert::Kernel(line.to_owned()));
        } else if let Some((_, reason)) = line.split_once(FATAL) {
            self.alarm.get_or_insert_with(|| Alert::Setup(reason.to_owned()));
        } else if has(WARNINGS) {
            self.warnings.push(line.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(pieces: &[&str]) -> Scan {
        let mut scan = Scan::default();
        for piece in pieces {
            scan.take(piece.as_bytes());
        }
        scan
    }

    #[test]
    fn a_line_in_pieces_is_judged_when_it_is_whole() {
        let panic = "[    5.1] Kernel panic - not syncing: sysrq triggered crash";
        assert_eq!(scan(&[panic]).alarm, None);
        assert_eq!(scan(&[&panic[..20], &panic[20..], "\r\n"]).alarm, Some(Alert::Kernel(panic.to_owned())));
    }

    #[test]
    fn the_first_alarm_counts() {
        let scan = scan(&["x\nBUG: unable to handle page fault\nOops: 0002\nKernel panic - not syncing\n"]);
        assert_eq!(scan.alarm, Some(Alert::Kernel("BUG: unable to handle page fault".to_owned())));
    }

    #[test]
    fn a_hung_task_is_a_failure() {
        let line = "INFO: task rping:300 blocked for more than 120 seconds.";
        assert_eq!(scan(&[line, "\n"]).alarm, Some(Alert::Kernel(line.to_owned())));
    }

    #[test]
    fn init_tells_why_it_gave_up() {
        let scan = scan(&["[ 1.0] softroce: fatal: no 9p\n"]);
        assert_eq!(scan.alarm, Some(Alert::Setup("no 9p".to_owned())));
    }

    #[test]
    fn warnings_are_kept_apart() {
        let scan = scan(&["WARNING: CPU: 0 PID: 1 at x.c:1\nall is well\n"]);
        assert_eq!(scan.alarm, None);
        assert_eq!(scan.warnings, ["WARNING: CPU: 0 PID: 1 at x.c:1"]);
    }
}
