//! Compares the counts with the table of limits.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result, ensure};

use crate::counting::{Counts, LEVELS};
use crate::limits::{ALLOCATIONS, Figure, OBJECTS, ROOM, ROOM_AT_LEAST, ROWS, Row};
use crate::memory::{Allocations, Bytes};

/// The counts of a row at a level.
#[derive(Debug)]
pub struct Verdict {
    /// The row.
    pub row: &'static Row,
    /// Its index in [`LEVELS`].
    pub level: usize,
    /// Instructions by the number of ids.
    pub counts: BTreeMap<usize, u64>,
}

impl Verdict {
    /// All rows at both levels.
    ///
    /// # Errors
    /// One was not counted.
    pub fn all(counts: &Counts) -> Result<Vec<Self>> {
        let each = (0..LEVELS.len()).flat_map(|level| ROWS.iter().map(move |row| (row, level)));
        each.map(|(row, level)| Ok(Verdict { row, level, counts: figures(row, level, counts)? })).collect()
    }

    /// The maximum of the instructions, for all numbers of ids up to the row's limit.
    #[must_use]
    pub fn worst(&self) -> u64 {
        let counts = self.counts.iter().filter(|(ids, _)| **ids <= self.row.up_to);
        counts.map(|(_, count)| *count).max().unwrap_or(u64::MAX)
    }

    /// The limit that it would have now.
    #[must_use]
    pub fn with_room(&self) -> u64 {
        let worst = self.worst();
        worst.saturating_add((worst.saturating_mul(ROOM) / 100).max(ROOM_AT_LEAST))
    }

    /// By how many per cent the worst exceeds the best.
    #[must_use]
    pub fn spread(&self) -> u64 {
        let best = self.counts.values().copied().min().unwrap_or_default();
        (self.worst().saturating_sub(best) * 100).div_ceil(best.max(1))
    }

    /// # Errors
    /// It exceeds its limit, or the allowed spread.
    pub fn hold(&self) -> Result<()> {
        let limit = self.row.limits[self.level];
        ensure!(self.worst() <= limit, "{self}: {}, and the limit is {limit}", self.worst());
        if let Some(spread) = self.row.spread {
            ensure!(self.spread() <= spread, "{self}: among some numbers of ids {} % more than at best", self.spread());
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.row.what, LEVELS[self.level])
    }
}

fn figures(row: &Row, level: usize, counts: &Counts) -> Result<BTreeMap<usize, u64>> {
    let level = LEVELS[level];
    let counted = counts.of(level, row.case)?;
    let Figure::Beyond(base) = row.figure else { return Ok(counted.clone()) };
    let base = counts.of(level, base)?;
    let beyond = counted.iter().map(|(ids, count)| {
        let base = base.get(ids).with_context(|| format!("no base of {} at {ids} ids", row.case))?;
        let beyond =
            count.checked_sub(*base).with_context(|| format!("{} at {ids} ids costs less than its base", row.case))?;
        Ok((*ids, beyond))
    });
    beyond.collect()
}

/// All figures that exceed a limit.
#[must_use]
pub fn beyond(verdicts: &[Verdict], allocations: &Allocations, bytes: &Bytes) -> Vec<String> {
    let instructions = verdicts.iter().filter_map(|verdict| verdict.hold().err()).map(|error| error.to_string());
    let allocations = allocations.iter().flat_map(|(level, cases)| {
        let too_many = cases.iter().filter(|(_, count)| **count > ALLOCATIONS);
        too_many.map(move |(case, count)| format!("{case} ({level}): {count} allocations, and there are to be none"))
    });
    let bytes = OBJECTS.iter().filter_map(|object| match bytes.get(object.name) {
        None => Some(format!("{} was not measured", object.what)),
        Some(&bytes) if bytes > object.limit => {
            Some(format!("{}: {bytes} bytes, the limit is {}", object.what, object.limit))
        }
        Some(_) => None,
    });
    instructions.chain(allocations).chain(bytes).collect()
}
