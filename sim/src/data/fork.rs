//! Pages that are excluded from forked children (libibverbs, `memory.c`).

use std::collections::BTreeMap;

use crate::data::space::Stretch;

/// Counts the registrations that exclude each page from forked children. The last one gives the page back.
#[derive(Debug, Default)]
pub(crate) struct ForkAdvice {
    pages: BTreeMap<u64, u32>,
}

impl ForkAdvice {
    /// `ibv_dontfork_range`.
    pub(crate) fn dontfork(&mut self, range: Stretch) {
        for page in range.pages() {
            *self.pages.entry(page).or_default() += 1;
        }
    }

    /// `ibv_dofork_range`.
    pub(crate) fn dofork(&mut self, range: Stretch) {
        for page in range.pages() {
            if let Some(count) = self.pages.get_mut(&page) {
                *count -= 1;
                if *count == 0 {
                    self.pages.remove(&page);
                }
            }
        }
    }

    /// Whether all pages of a range are excluded.
    #[cfg(test)]
    pub(crate) fn keeps(&self, range: Stretch) -> bool {
        range.pages().all(|page| self.pages.contains_key(&page))
    }

    /// The number of excluded pages.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.pages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::space::PAGE;

    #[test]
    fn overlapping_ranges_keep_what_they_share() {
        let range = |first: u64, pages: u64| Stretch { addr: first * PAGE, len: (pages * PAGE) as usize };
        let mut advice = ForkAdvice::default();
        advice.dontfork(range(1, 3));
        advice.dontfork(range(3, 2));
        assert_eq!(advice.count(), 4);
        advice.dofork(range(1, 3));
        assert!(advice.keeps(range(3, 2)) && !advice.keeps(range(2, 1)));
        advice.dofork(range(3, 2));
        assert_eq!(advice.count(), 0);
        // A surplus call has no effect.
        advice.dofork(range(3, 2));
        assert_eq!(advice.count(), 0);
    }

    #[test]
    fn a_part_of_a_page_is_the_page() {
        let mut advice = ForkAdvice::default();
        advice.dontfork(Stretch { addr: PAGE - 1, len: 2 });
        assert!(advice.keeps(Stretch { addr: 0, len: 2 * PAGE as usize }));
        assert_eq!(advice.count(), 2);
    }
}
