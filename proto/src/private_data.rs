//! The bytes that a message of the connection manager carries for the application.

use core::fmt;
use core::ops::Deref;

/// The most private data that any event carries: 216 bytes, a UD request over `AF_IB` (rdma_connect(3)).
pub const PRIVATE_DATA_MAX: usize = 216;

/// Private data of a message, stored inline.
#[derive(Clone)]
pub struct PrivateData {
    len: u8,
    bytes: [u8; PRIVATE_DATA_MAX],
}

static_assertions::const_assert!(PRIVATE_DATA_MAX <= u8::MAX as usize);

impl PrivateData {
    /// No private data.
    pub const EMPTY: PrivateData = PrivateData { len: 0, bytes: [0; PRIVATE_DATA_MAX] };

    /// A copy of `data`, cut at [`PRIVATE_DATA_MAX`], which no transport exceeds.
    #[must_use]
    pub fn copy_of(data: &[u8]) -> Self {
        let data = &data[..data.len().min(PRIVATE_DATA_MAX)];
        let mut copy = Self::EMPTY;
        copy.bytes[..data.len()].copy_from_slice(data);
        copy.len = data.len() as u8;
        copy
    }
}

impl Deref for PrivateData {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl PartialEq for PrivateData {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
impl Eq for PrivateData {}

impl core::hash::Hash for PrivateData {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Zero padding is most of it; what matters is the head and the length.
        let used = self.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        write!(f, "{:02x?} of {}", &self[..used], self.len)
    }
}
