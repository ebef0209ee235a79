//! The same bits with and without a sign.

/// The bits of an unsigned number as a signed one.
#[inline]
pub(crate) const fn signed(bits: u32) -> i32 {
    i32::from_ne_bytes(bits.to_ne_bytes())
}

/// The bits of a signed number as an unsigned one.
#[inline]
pub(crate) const fn unsigned(bits: i32) -> u32 {
    u32::from_ne_bytes(bits.to_ne_bytes())
}
