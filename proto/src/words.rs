//! Texts and conversions of errors.

use core::fmt;

/// Implements `Debug` by `Display`: a `main` that returns an error prints its `Debug` form, and that is to be in words.
macro_rules! debug_in_words {
    ($($error:ty),+ $(,)?) => {
        $(
            impl core::fmt::Debug for $error {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    core::fmt::Display::fmt(self, f)
                }
            }
        )+
    };
}
pub(crate) use debug_in_words;

debug_in_words!(crate::datapath::Overrun, crate::text::ParseError);
#[cfg(feature = "std")]
debug_in_words!(crate::datapath::DrainError);

/// Implements `From` by a function or closure.
macro_rules! converts {
    ($($from:ty => $to:ty: $convert:expr;)+) => {
        $(
            impl From<$from> for $to {
                fn from(error: $from) -> Self {
                    $convert(error)
                }
            }
        )+
    };
}
pub(crate) use converts;

/// A cause behind an errno.
pub(crate) struct Because<T>(pub(crate) Option<T>);

impl<T: fmt::Display> fmt::Display for Because<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}
