//! Numbers and texts in byte arrays of a peer. What is beyond the end reads as zero, so no call can fail.

/// Copies `N` bytes at `offset`.
pub(super) fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut copy = [0; N];
    for (to, from) in copy.iter_mut().zip(bytes.iter().skip(offset)) {
        *to = *from;
    }
    copy
}

/// Reads 16 bits.
pub(super) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array(bytes, offset))
}

/// Reads 32 bits.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array(bytes, offset))
}

/// Reads 64 bits.
pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array(bytes, offset))
}

/// Reads a byte.
pub(super) fn u8_at(bytes: &[u8], offset: usize) -> u8 {
    bytes.get(offset).copied().unwrap_or(0)
}

/// Reads a text that is padded with blanks or zeros. What a terminal would obey is replaced.
pub(super) fn text_at(bytes: &[u8], offset: usize, len: usize) -> String {
    let bytes: Vec<u8> = bytes.iter().skip(offset).take(len).copied().take_while(|&byte| byte != 0).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.trim().chars().map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect()
}

/// Writes bytes at `offset`, as far as there is room.
pub(super) fn put(bytes: &mut [u8], offset: usize, from: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(offset).zip(from) {
        *to = *from;
    }
}
