//! What is knowingly different between the simulator and a kernel, or not in the programs, and why.

/// A difference, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What.
    pub what: &'static str,
    /// Why, and what is done about it here.
    pub why: &'static str,
}
