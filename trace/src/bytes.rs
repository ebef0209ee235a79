//! Private data as text.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

/// Maximum number of bytes. Longer data is truncated; no message is as long.
const BYTES_MAX: usize = 1 << 16;

/// Bytes, in hex without trailing zeros, and their number: `68656c6c6f/56`. The zeros are not in memory either: a file
/// of many such texts would need 300 times its size.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Bytes {
    used: Vec<u8>,
    len: usize,
}

impl Bytes {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all of them.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = self.used.clone();
        bytes.resize(self.len, 0);
        bytes
    }

    fn parse(text: &str) -> Option<Self> {
        let (hex, len) = text.split_once('/')?;
        let len: usize = len.parse().ok()?;
        if len > BYTES_MAX || hex.len() > 2 * len || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let pairs = (0..hex.len()).step_by(2).map(|at| hex.get(at..at + 2));
        let bytes = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<Vec<u8>>>()?;
        Some(Bytes { len, ..Bytes::from(&bytes[..]) })
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        let len = bytes.len().min(BYTES_MAX);
        let used = bytes[..len].iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        Bytes { used: bytes[..used].to_vec(), len }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.used.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "/{}", self.len)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Bytes::parse(&text).ok_or_else(|| D::Error::custom(format_args!("{text:?} is no sequence of bytes")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_are_written() {
        for bytes in [&b""[..], b"hello", b"\0\0\x01\0\0", &[0; 216], &[0xff; 196]].map(Bytes::from) {
            assert!(Bytes::parse(&bytes.to_string()) == Some(bytes));
        }
        let padded = Bytes::parse("0068000000/7").unwrap();
        assert!(padded.to_vec() == b"\0h\0\0\0\0\0" && padded.to_string() == "0068/7");
        assert!(Bytes::parse("0068/7") == Some(padded));
        for text in ["", "/", "0", "0/1", "00/0", "gg/1", "+1/1", "/65537", "00/-1", "é/4", "0é/4"] {
            assert!(Bytes::parse(text).is_none(), "{text}");
        }
    }
}
