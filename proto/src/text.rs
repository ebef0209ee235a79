//! Values by their text: `FromStr`, and with the feature `serde` in files.

/// A text that no value of the type has.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not {0}")]
pub struct ParseError(pub(crate) &'static str);

/// For serde: whether a field is left out.
#[cfg(feature = "serde")]
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Keys, errnos and event types are written as their text.
#[cfg(feature = "serde")]
mod by_text {
    use core::fmt;
    use core::marker::PhantomData;
    use core::str::FromStr;

    use serde::de::{Deserialize, Deserializer, Error, Visitor};
    use serde::ser::{Serialize, Serializer};

    use super::ParseError;
    use crate::{ChannelKey, CmEvent, Errno, GroupKey, IdKey};

    struct Text<T>(PhantomData<T>);

    impl<T: FromStr<Err = ParseError>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(|error| E::custom(format_args!("{text:?}: {error}")))
        }
    }

    macro_rules! by_text {
        ($($name:ty),+) => {
            $(
                impl Serialize for $name {
                    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                        serializer.collect_str(self)
                    }
                }

                impl<'de> Deserialize<'de> for $name {
                    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                        deserializer.deserialize_str(Text(PhantomData))
                    }
                }
            )+
        };
    }

    by_text!(IdKey, ChannelKey, GroupKey, Errno, CmEvent);
}

#[cfg(test)]
mod tests {
    use core::fmt::{Debug, Display};
    use core::str::FromStr;

    use alloc::string::ToString;

    use super::ParseError;
    use crate::{ChannelKey, CmEvent, Errno, GroupKey, IdKey};

    fn there_and_back<T: Display + FromStr<Err = ParseError> + PartialEq + Debug>(values: impl IntoIterator<Item = T>) {
        for value in values {
            assert_eq!(value.to_string().parse(), Ok(value));
        }
    }

    #[test]
    fn texts_are_parsed_as_they_are_written() {
        there_and_back([1, 2, 22, 104, 133, 134, 524, 4000, 0, -5, i32::MIN].map(Errno));
        there_and_back(CmEvent::ALL.iter().copied());
        there_and_back([31, 32, u32::MAX].map(CmEvent::Unknown));
        there_and_back([1, 7 << 40 | 3 << 28 | 5, u64::MAX].map(|bits| IdKey::from_bits(bits).unwrap()));
        there_and_back([0, 3, 4095].map(|core| ChannelKey::from_parts(core, 7, 2).unwrap()));
        assert_eq!("s3/grp1.2".parse(), Ok(GroupKey::from_parts(3, 1, 2).unwrap()));
    }

    #[test]
    fn other_texts_are_errors() {
        let numbers =
            ["", "id", "id-1", "id+1", "id1.0", "id1.1", "id01", "id4294967296", "id1.2.3", "id16777216", "id\u{e9}"];
        for text in numbers.into_iter().chain(["ch1", "s0/id1", "s4096/id1", "s1/ch1", "s1id1", "s/id1"]) {
            assert!(text.parse::<IdKey>().is_err(), "{text}");
        }
        for text in ["", "errno", "errno 22", "EFOO", "errno x", "errno  4000"] {
            assert!(text.parse::<Errno>().is_err(), "{text}");
        }
        for text in ["", "UNKNOWN", "UNKNOWN(3)", "UNKNOWN(+31)", "established"] {
            assert!(text.parse::<CmEvent>().is_err(), "{text}");
        }
        assert_eq!("id0".parse::<ChannelKey>().unwrap_err().to_string(), "it is not a key that begins with ch");
    }
}
