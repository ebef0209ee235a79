//! Decides whether a channel is read again without an `epoll_wait`.

use cmid_proto::ChannelKey;

/// The maximum number of consecutive reads of one channel before other channels are read.
const IN_A_ROW: u8 = 16;

/// The number of reports without a further read after a read that found no event.
const PAUSE: core::ops::RangeInclusive<u8> = 7..=63;

/// The results of earlier reads decide. If events come in bursts, a further read at once saves an `epoll_wait`. If they
/// come one by one, it finds no event and costs more than it saves. A read that finds no event doubles the pause before
/// the next attempt. A read that finds an event shortens the pause by one report.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadOn {
    /// The channel of the last report, if it was reported alone.
    channel: Option<ChannelKey>,
    /// Further reads allowed before the next `epoll_wait`.
    left: u8,
    /// Reports left of the pause.
    pause: u8,
    /// Length of the last pause, in reports.
    paused: u8,
}

impl ReadOn {
    /// Records the channel of a report; `None` for no channel, and for several.
    #[inline]
    pub(crate) fn reported(&mut self, channel: Option<ChannelKey>) {
        if self.pause > 0 {
            self.pause -= 1;
        }
        (self.channel, self.left) = (channel, IN_A_ROW);
    }

    /// Returns the channel to read again now, if any.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<ChannelKey> {
        if self.pause > 0 || self.left == 0 {
            return None;
        }
        self.left -= 1;
        self.channel
    }

    /// Records whether the read found an event.
    #[inline]
    pub(crate) fn found(&mut self, event: bool) {
        if event {
            self.paused = self.paused.saturating_sub(1);
        } else {
            self.paused = (2 * self.paused + 1).clamp(*PAUSE.start(), *PAUSE.end());
            self.pause = self.paused;
            self.channel = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> ChannelKey {
        ChannelKey::from_bits(1).unwrap()
    }

    /// Simulates `reports` reports of one channel with `each` events each. Returns the numbers of further reads that
    /// found an event, and that found none.
    fn read(read_on: &mut ReadOn, reports: u32, each: u32) -> (u32, u32) {
        let (mut found, mut in_vain) = (0, 0);
        for _ in 0..reports {
            read_on.reported(Some(channel()));
            let mut left = each - 1;
            while read_on.next().is_some() {
                read_on.found(left > 0);
                if left == 0 {
                    in_vain += 1;
                } else {
                    (found, left) = (found + 1, left - 1);
                }
            }
        }
        (found, in_vain)
    }

    #[test]
    fn a_busy_channel_is_read_on_until_others_get_theirs() {
        assert_eq!(read(&mut ReadOn::default(), 1, 1000), (u32::from(IN_A_ROW), 0));
        assert_eq!(read(&mut ReadOn::default(), 10, 1000), (10 * u32::from(IN_A_ROW), 0));
    }

    #[test]
    fn where_events_come_one_by_one_few_reads_are_in_vain() {
        let mut read_on = ReadOn::default();
        assert_eq!(read(&mut read_on, 64, 1), (0, 4));
        assert_eq!(read(&mut read_on, 630, 1), (0, 10));
        // A burst is detected after the pause.
        let (found, in_vain) = read(&mut read_on, 63 + 16, 1000);
        assert!(found >= 15 * u32::from(IN_A_ROW) && in_vain == 0, "{found} found, {in_vain} in vain");
    }

    #[test]
    fn no_channel_is_preferred_to_another() {
        let mut read_on = ReadOn::default();
        read_on.reported(None);
        assert_eq!(read_on.next(), None);
    }
}
