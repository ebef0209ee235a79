//! Converts between signed and unsigned numbers without changing their bits.

/// Returns the bits of an unsigned number as a signed number.
pub(crate) const fn signed(bits: u32) -> i32 {
    i32::from_ne_bytes(bits.to_ne_bytes())
}

/// Returns the bits of a signed number as an unsigned number.
pub(crate) const fn unsigned(bits: i32) -> u32 {
    u32::from_ne_bytes(bits.to_ne_bytes())
}
