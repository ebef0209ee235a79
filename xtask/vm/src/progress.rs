//! Tells the steps that take long.

/// Tells on standard error that a step begins.
pub fn begin(step: &str) {
    eprintln!("softroce: {step}");
}
