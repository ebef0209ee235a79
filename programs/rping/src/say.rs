//! Standard output.

use std::io;
use std::sync::OnceLock;

/// The first error of standard output.
pub(crate) static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints a line. An error, such as that of a full disk, does not stop a ping: it is reported at the end.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout().lock(), $($arg)*).unwrap_or_else(|error| drop($crate::say::LOST.set(error)));
    }};
}
