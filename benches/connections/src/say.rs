//! Standard output.

/// Prints a line. Ignores errors: a closed standard output does not stop the measurement.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout().lock(), $($arg)*);
    }};
}
