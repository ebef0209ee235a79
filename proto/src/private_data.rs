//! The application's private data in a message of the connection manager.

use core::fmt;
use core::ops::Deref;

/// Private data of a message, stored inline.
#[derive(Clone)]
pub struct PrivateData(Content);

/// A variant without data, because most events have none and zeroing an array costs instructions.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "the core does not allocate")]
enum Content {
    Nothing,
    /// Bytes beyond the length are not part of it.
    Bytes {
        len: u8,
        bytes: [u8; PrivateData::MAX],
    },
}

static_assertions::const_assert!(PrivateData::MAX <= u8::MAX as usize);

impl PrivateData {
    /// The maximum private data of an event in bytes: that of a UD request over `AF_IB` (rdma_connect(3)).
    pub const MAX: usize = 216;

    /// No private data.
    pub const EMPTY: PrivateData = PrivateData(Content::Nothing);

    /// As [`EMPTY`](Self::EMPTY), but does not copy the zeros of a constant.
    pub(crate) fn empty() -> Self {
        PrivateData(Content::Nothing)
    }

    /// Copies at most [`PrivateData::MAX`] bytes of `data`. No transport has more.
    #[must_use]
    pub fn copy_of(data: &[u8]) -> Self {
        let mut copy = Self::empty();
        copy.set(data);
        copy
    }

    /// Replaces the content by a copy of `data`, as [`copy_of`](Self::copy_of) does: one copy. Bytes beyond the length
    /// are those of earlier contents.
    pub(crate) fn set(&mut self, data: &[u8]) {
        if matches!(self.0, Content::Nothing) && !data.is_empty() {
            self.0 = Content::Bytes { len: 0, bytes: [0; PrivateData::MAX] };
        }
        if let Content::Bytes { len, bytes } = &mut self.0 {
            let data = &data[..data.len().min(PrivateData::MAX)];
            *len = data.len() as u8;
            bytes[..data.len()].copy_from_slice(data);
        }
    }
}

impl Deref for PrivateData {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Content::Nothing => &[],
            Content::Bytes { len, bytes } => &bytes[..usize::from(*len)],
        }
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

/// Writes the length only: private data of a peer may be secret, and events and errors that contain it are logged.
impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
