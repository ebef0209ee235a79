//! Converts bytes to choices: those of a fuzzer, of proptest, or of a seed.
//!
//! A choice takes one byte, so that a change of one byte changes one choice. Without remaining bytes every choice is
//! the first.

use arbitrary::{Arbitrary, Unstructured};

/// The remaining bytes.
#[derive(Debug)]
pub struct Input<'a> {
    bytes: Unstructured<'a>,
    is_graded: bool,
}

impl<'a> Input<'a> {
    /// All of the bytes.
    pub fn new(data: &'a [u8]) -> Self {
        Input { bytes: Unstructured::new(data), is_graded: false }
    }

    /// All of the bytes, of which a smaller one is an earlier choice, among at most 256. What makes bytes smaller then
    /// finds the first choices, and all of many choices are about as likely.
    pub fn graded(data: &'a [u8]) -> Self {
        Input { is_graded: true, ..Input::new(data) }
    }

    /// Whether no bytes remain.
    pub fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        if self.is_graded {
            return usize::from(self.any::<u8>()) * count / 256;
        }
        self.bytes.int_in_range(0..=count.max(1) - 1).unwrap_or(0)
    }

    /// True once in `times`; false without remaining bytes.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) + 1 == times
    }

    /// One of several; `None` of none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len());
        from.get(at).copied()
    }

    /// Any value of a type that is made of numbers.
    pub fn any<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.bytes.arbitrary().unwrap_or_default()
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
        assert_eq!([0, 51, 52, 255].map(|byte| Input::graded(&[byte]).below(5)), [0, 0, 1, 4]);
    }
}
