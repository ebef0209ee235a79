//! Compares a result with the recorded one.

use std::fmt::Debug;

pub(crate) fn same<T: PartialEq + Debug + ?Sized>(what: &str, found: &T, recorded: &T) -> Result<(), String> {
    if found == recorded { Ok(()) } else { Err(format!("{what} is {found:?}; recorded was {recorded:?}")) }
}
