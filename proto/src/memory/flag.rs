//! Numbers that two peers exchange through registered memory, for example as flags or counters.

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

/// A number that a peer and this side exchange through registered memory, read and written atomically: `u32` or
/// `u64`, in the byte order of this machine.
pub trait Flag: Copy + sealed::Sealed {
    /// The length in bytes. The address is a multiple of it.
    const LEN: usize;

    /// Returns the number with the lower [`Flag::LEN`] bytes of `bits`.
    fn from_bits(bits: u64) -> Self;

    /// Returns the number in the lower bits; the upper bits are zero.
    fn bits(self) -> u64;

    /// Reads the number from a slice; `None` if the slice does not have [`Flag::LEN`] bytes.
    fn from_slice(bytes: &[u8]) -> Option<Self>;

    /// Writes the number to a slice; `None` if the slice does not have [`Flag::LEN`] bytes.
    fn copy_to(self, bytes: &mut [u8]) -> Option<()>;
}

impl Flag for u32 {
    const LEN: usize = size_of::<u32>();

    fn from_bits(bits: u64) -> Self {
        bits as u32
    }

    fn bits(self) -> u64 {
        u64::from(self)
    }

    fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_ne_bytes)
    }

    fn copy_to(self, bytes: &mut [u8]) -> Option<()> {
        *<&mut [u8; Self::LEN]>::try_from(bytes).ok()? = self.to_ne_bytes();
        Some(())
    }
}

impl Flag for u64 {
    const LEN: usize = size_of::<u64>();

    fn from_bits(bits: u64) -> Self {
        bits
    }

    fn bits(self) -> u64 {
        self
    }

    fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_ne_bytes)
    }

    fn copy_to(self, bytes: &mut [u8]) -> Option<()> {
        *<&mut [u8; Self::LEN]>::try_from(bytes).ok()? = self.to_ne_bytes();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_its_bytes() {
        let mut bytes = [0; 9];
        assert_eq!(0x0102_0304_u32.copy_to(&mut bytes[..4]), Some(()));
        assert_eq!(
            (bytes[..4].to_vec(), u32::from_slice(&bytes[..4])),
            (0x0102_0304_u32.to_ne_bytes().to_vec(), Some(0x0102_0304))
        );
        assert_eq!((7_u64.copy_to(&mut bytes[1..]), u64::from_slice(&bytes[1..])), (Some(()), Some(7)));
        assert_eq!((u64::from_slice(&bytes), u32::from_slice(&bytes), 7_u32.copy_to(&mut bytes)), (None, None, None));
        assert_eq!((u32::from_bits(7 << 32 | 5), 5_u32.bits(), u64::from_bits(u64::MAX).bits()), (5, 5, u64::MAX));
    }
}
