//! Converts the fuzzer's bytes to choices.
//!
//! A choice takes one byte, so that a change of one byte changes one choice. Without remaining bytes every choice is
//! the first.

use arbitrary::{Arbitrary, Unstructured};

/// The remaining bytes.
#[derive(Debug)]
pub(crate) struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    /// All of the bytes.
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Input(Unstructured::new(data))
    }

    /// Whether no bytes remain.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// A number below `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.0.int_in_range(0..=count.max(1) - 1).unwrap_or(0)
    }

    /// True once in `times`; false without remaining bytes.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) + 1 == times
    }

    /// One of several; `None` of none.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len());
        from.get(at).copied()
    }

    /// Any value of a type that is made of numbers.
    pub(crate) fn any<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_takes_a_byte_and_the_first_is_taken_when_there_are_none() {
        let mut input = Input::new(&[7, 1, 9]);
        assert_eq!(input.below(5), 2);
        assert_eq!(input.pick(&['a', 'b', 'c']), Some('b'));
        assert!(!input.is_over());
        assert!(input.once_in(10));
        assert!(input.is_over());
        assert_eq!((input.below(5), input.once_in(2)), (0, false));
        assert_eq!(input.pick::<u8>(&[]), None);
    }
}
