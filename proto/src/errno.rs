//! The system's error numbers, as the device returned them.

use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

use crate::text::ParseError;
use crate::words::debug_in_words;

/// A Linux `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal),+ $(,)?) => {
        #[allow(missing_docs, reason = "the names are errno(3)'s and the kernel's")]
        impl Errno {
            $( pub const $name: Errno = Errno($value); )+

            /// Returns the symbol of errno(3); `None` for a number without a constant here. `ENOTSUPP` is not there: the
            /// kernel's functions return it among themselves (`linux/errno.h`), and some of it reaches an application.
            #[must_use]
            pub const fn symbol(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some(stringify!($name)), )+
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, ENOENT = 2, EINTR = 4, EIO = 5, ENXIO = 6, EBADF = 9, EAGAIN = 11, ENOMEM = 12, EACCES = 13,
    EFAULT = 14, EBUSY = 16, ENODEV = 19, EINVAL = 22, ENFILE = 23, EMFILE = 24, ENOSYS = 38, EBADE = 52, ENODATA = 61,
    EOVERFLOW = 75, EPROTONOSUPPORT = 93, EOPNOTSUPP = 95, EAFNOSUPPORT = 97, EADDRINUSE = 98,
    EADDRNOTAVAIL = 99, ENETUNREACH = 101, ECONNRESET = 104, EISCONN = 106, ENOTCONN = 107, ETIMEDOUT = 110,
    ECONNREFUSED = 111, EHOSTUNREACH = 113, EALREADY = 114, ECANCELED = 125, ENOTSUPP = 524,
}

impl Errno {
    /// Returns the errno as the status of an event: negative, and never the 0 of success.
    pub(crate) const fn as_status(self) -> i32 {
        match self.0 {
            0 => -Errno::EIO.0,
            errno => errno.saturating_neg(),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.symbol() {
            Some(symbol) => f.write_str(symbol),
            None => write!(f, "errno {}", self.0),
        }
    }
}

debug_in_words!(Errno);

impl FromStr for Errno {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut known = (1..=Errno::ENOTSUPP.0).map(Errno);
        let numbered = || text.strip_prefix("errno ")?.parse().ok().map(Errno);
        let errno = known.find(|errno| errno.symbol() == Some(text)).or_else(numbered);
        errno.filter(|errno| errno.to_string() == text).ok_or(ParseError("an errno"))
    }
}

impl core::error::Error for Errno {}
