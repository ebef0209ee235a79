//! The text forms of values: keys in their printed form, errnos and enums by name, bytes in hex.

use std::fmt;

use cmid_proto::{Acks, ChannelKey, CmEvent, Errno, GroupKey, IdKey, PortSpace, RejectReason};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

/// Maximum number of bytes of a value. Longer values are truncated; no message is as long.
const BYTES_MAX: usize = 1 << 16;

/// A value with its own text form in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct As<T>(pub(crate) T);

/// A value that is written as one word.
pub(crate) trait Word: Sized {
    /// The name of the type in error messages.
    const WHAT: &'static str;
    fn to_word(&self) -> String;
    fn from_word(word: &str) -> Option<Self>;
}

impl<T: Word> Serialize for As<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_word())
    }
}

impl<'de, T: Word> Deserialize<'de> for As<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        T::from_word(&word).map(As).ok_or_else(|| D::Error::custom(format_args!("{word:?} is no {}", T::WHAT)))
    }
}

macro_rules! keys {
    ($($key:ident = $letters:literal, $what:literal;)+) => {
        $(impl Word for $key {
            const WHAT: &'static str = $what;
            fn to_word(&self) -> String {
                self.to_string()
            }
            fn from_word(word: &str) -> Option<Self> {
                let (core, rest) = match word.strip_prefix('s') {
                    Some(numbered) => numbered.split_once('/')?,
                    None => ("0", word),
                };
                let numbers = rest.strip_prefix($letters)?;
                let (slot, generation) = numbers.split_once('.').unwrap_or((numbers, "1"));
                let key = $key::from_parts(core.parse().ok()?, slot.parse().ok()?, generation.parse().ok()?)?;
                // Accepts the canonical form only, so that equal keys are equal words.
                (key.to_string() == word).then_some(key)
            }
        })+
    };
}

keys! {
    IdKey = "id", "key of an id";
    ChannelKey = "ch", "key of a channel";
    GroupKey = "grp", "key of a membership";
}

/// Parses a value that has a number, and usually a name.
fn numbered<T: Copy + FromNumber>(
    word: &str,
    prefix: &str,
    mut known: impl Iterator<Item = T>,
    name: fn(T) -> String,
) -> Option<T> {
    known.find(|&it| name(it) == word).or_else(|| {
        let made = T::from_number(word.strip_prefix(prefix)?.trim_start())?;
        (name(made) == word).then_some(made)
    })
}

trait FromNumber: Sized {
    fn from_number(digits: &str) -> Option<Self>;
}

impl FromNumber for Errno {
    fn from_number(digits: &str) -> Option<Self> {
        digits.parse().ok().map(Errno)
    }
}

impl FromNumber for CmEvent {
    fn from_number(digits: &str) -> Option<Self> {
        digits.strip_prefix('(')?.strip_suffix(')')?.parse().ok().map(CmEvent::from_code)
    }
}

impl Word for Errno {
    const WHAT: &'static str = "errno";
    fn to_word(&self) -> String {
        self.to_string()
    }
    fn from_word(word: &str) -> Option<Self> {
        numbered(word, "errno", (1..=133).map(Errno).chain([Errno::ENOTSUPP]), |errno| errno.to_string())
    }
}

impl Word for CmEvent {
    const WHAT: &'static str = "event";
    fn to_word(&self) -> String {
        self.to_string()
    }
    fn from_word(word: &str) -> Option<Self> {
        numbered(word, "UNKNOWN", CmEvent::ALL.iter().copied(), |event| event.to_string())
    }
}

impl Word for PortSpace {
    const WHAT: &'static str = "port space";
    fn to_word(&self) -> String {
        self.name().to_owned()
    }
    fn from_word(word: &str) -> Option<Self> {
        PortSpace::ALL.into_iter().find(|it| it.name() == word)
    }
}

impl Word for Acks {
    const WHAT: &'static str = "way of acknowledging";
    fn to_word(&self) -> String {
        match self {
            Acks::Explicit => "explicit",
            Acks::OnDelivery => "on delivery",
        }
        .to_owned()
    }
    fn from_word(word: &str) -> Option<Self> {
        [Acks::Explicit, Acks::OnDelivery].into_iter().find(|it| it.to_word() == word)
    }
}

impl Word for RejectReason {
    const WHAT: &'static str = "reason";
    fn to_word(&self) -> String {
        match self {
            RejectReason::Consumer => "consumer",
            RejectReason::Ece => "ece",
        }
        .to_owned()
    }
    fn from_word(word: &str) -> Option<Self> {
        [RejectReason::Consumer, RejectReason::Ece].into_iter().find(|it| it.to_word() == word)
    }
}

/// Bytes in hex without trailing zeros, and the total number of bytes: `68656c6c6f/56`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Bytes(bytes[..bytes.len().min(BYTES_MAX)].to_vec())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.0.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        self.0[..used].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "/{}", self.0.len())
    }
}

impl Word for Bytes {
    const WHAT: &'static str = "sequence of bytes";
    fn to_word(&self) -> String {
        self.to_string()
    }
    fn from_word(word: &str) -> Option<Self> {
        let (hex, len) = word.split_once('/')?;
        let len: usize = len.parse().ok()?;
        if len > BYTES_MAX || hex.len() > 2 * len || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
        let mut bytes = pairs
            .map(|pair| u8::from_str_radix(pair.filter(|it| it.len() == 2)?, 16).ok())
            .collect::<Option<Vec<u8>>>()?;
        bytes.resize(len, 0);
        Some(Bytes(bytes))
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_word())
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Bytes::from_word(&word).ok_or_else(|| D::Error::custom(format_args!("{word:?} is no {}", Bytes::WHAT)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn there_and_back<T: Word + PartialEq + fmt::Debug>(values: impl IntoIterator<Item = T>) {
        for value in values {
            assert_eq!(T::from_word(&value.to_word()).as_ref(), Some(&value), "{}", value.to_word());
        }
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        there_and_back([1, 2, 22, 104, 133, 134, 4000, 0, -5, i32::MIN].map(Errno));
        there_and_back(CmEvent::ALL.iter().copied());
        there_and_back([31, 32, u32::MAX].map(CmEvent::Unknown));
        there_and_back(PortSpace::ALL);
        there_and_back([Acks::Explicit, Acks::OnDelivery]);
        there_and_back([RejectReason::Consumer, RejectReason::Ece]);
        there_and_back([1, 7 << 40 | 3 << 28 | 5, u64::MAX].map(|bits| IdKey::from_bits(bits).unwrap()));
        there_and_back([0, 3, 4095].map(|core| ChannelKey::from_parts(core, 7, 2).unwrap()));
        assert_eq!(GroupKey::from_word("s3/grp1.2"), GroupKey::from_parts(3, 1, 2));
        there_and_back([&b""[..], b"hello", b"\0\0\x01\0\0", &[0; 216], &[0xff; 196]].map(Bytes::from));
    }

    #[test]
    fn other_words_are_not_read() {
        for word in [
            "",
            "id",
            "id-1",
            "id1.0",
            "id1.1",
            "id01",
            "id4294967296",
            "ch1",
            "id1.2.3",
            "idé",
            "s0/id1",
            "s4096/id1",
            "s1/ch1",
            "s1id1",
            "s/id1",
            "id16777216",
        ] {
            assert_eq!(IdKey::from_word(word), None, "{word}");
        }
        for word in ["", "/", "0", "0/1", "00/0", "gg/1", "+1/1", "/65537", "00/-1", "é/4", "0é/4"] {
            assert_eq!(Bytes::from_word(word), None, "{word}");
        }
        for word in ["", "errno", "errno 22", "EFOO", "errno x"] {
            assert_eq!(Errno::from_word(word), None, "{word}");
        }
        assert_eq!(CmEvent::from_word("UNKNOWN(3)"), None);
    }
}
