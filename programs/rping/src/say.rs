//! Standard output.

/// Prints a line. Ignores errors, so that a closed standard output does not stop a ping.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout().lock(), $($arg)*);
    }};
}
