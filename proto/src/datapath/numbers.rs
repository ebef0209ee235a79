//! Numbers of the verbs, of which some have names.

/// Defines constants for the known values of a number, and its `Display`: the text after a value, or the constant's
/// name; for other values, `other` and the number.
macro_rules! names {
    ($type:ident, other $other:literal; $($(#[$doc:meta])* $name:ident = $value:literal $(, $text:literal)?;)+) => {
        impl $type {
            $( $(#[$doc])* pub const $name: $type = $type($value); )+
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.0 {
                    $( $value => f.write_str([$($text,)? stringify!($name)][0]), )+
                    number => write!(f, concat!($other, " {}"), number),
                }
            }
        }
    };
}
pub(crate) use names;
