//! Standard output.

/// Prints a line. Returns the error of standard output, such as that of a full disk.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), $($arg)*).map_err(|error| anyhow::anyhow!("standard output: {error}"))
    }};
}
