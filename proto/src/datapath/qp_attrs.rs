//! The attributes of a connected QP that a program may choose: how long it waits, and how often it repeats.

use core::time::Duration;

use super::QpState;
use crate::columns::columns;
use crate::errno::Errno;
use crate::transport::Transport;
use crate::words::debug_in_words;

/// Attributes of a connected QP (`struct ibv_qp_attr`), for [`QueuePair::modify`](super::QueuePair::modify). `None` leaves
/// one as it is: as the connection manager sets it, from the connection parameters and the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_attr")]
pub struct QpAttrs {
    /// How long the peer waits before it repeats a message for which this side had no receive (`min_rnr_timer`). The kernel
    /// sets the longest time, [`RnrTimer::LONGEST`]: a receive that is posted 1 ms late costs 655 ms.
    pub min_rnr_timer: Option<RnrTimer>,
    /// How long this side waits for an ack before it repeats a packet.
    pub timeout: Option<AckTimeout>,
    /// How often this side repeats a packet without an ack (`retry_cnt`), 0 to 7. Soft-RoCE repeats without limit at 7.
    pub retry_count: Option<u8>,
    /// How often this side repeats a message for which the peer has no receive (`rnr_retry`), 0 to 6; 7 without limit. On
    /// soft-RoCE such a wait uses up [`QpAttrs::retry_count`] if it is longer than [`QpAttrs::timeout`].
    pub rnr_retry: Option<u8>,
}

/// The largest of both counts.
const MAX_RETRIES: u8 = 7;

impl QpAttrs {
    /// Returns these attributes, and those of `before` where they have none.
    #[must_use]
    pub fn or(self, before: QpAttrs) -> QpAttrs {
        QpAttrs {
            min_rnr_timer: self.min_rnr_timer.or(before.min_rnr_timer),
            timeout: self.timeout.or(before.timeout),
            retry_count: self.retry_count.or(before.retry_count),
            rnr_retry: self.rnr_retry.or(before.rnr_retry),
        }
    }

    /// Checks whether a QP in this state can have these attributes: in INIT all, to be set when the connection manager moves
    /// the QP; in RTS only [`QpAttrs::min_rnr_timer`] (`qp_state_table` of the kernel).
    ///
    /// # Errors
    /// [`ModifyReason::TooLarge`], [`ModifyReason::TooLate`], or [`ModifyReason::Ended`].
    pub fn check(self, state: QpState) -> Result<(), ModifyReason> {
        for (attr, asked) in [(QpAttr::RetryCount, self.retry_count), (QpAttr::RnrRetry, self.rnr_retry)] {
            if let Some(asked) = asked.filter(|asked| *asked > MAX_RETRIES) {
                return Err(ModifyReason::TooLarge { attr, asked, max: MAX_RETRIES });
            }
        }
        match state {
            QpState::RESET | QpState::INIT => Ok(()),
            QpState::RTR | QpState::RTS => {
                self.too_late(state).map_or(Ok(()), |attr| Err(ModifyReason::TooLate(attr, state)))
            }
            state => Err(ModifyReason::Ended(state)),
        }
    }

    /// The first attribute that cannot be set in RTR or RTS.
    fn too_late(self, state: QpState) -> Option<QpAttr> {
        let given = [
            (QpAttr::MinRnrTimer, self.min_rnr_timer.is_some() && state != QpState::RTS),
            (QpAttr::Timeout, self.timeout.is_some()),
            (QpAttr::RetryCount, self.retry_count.is_some()),
            (QpAttr::RnrRetry, self.rnr_retry.is_some()),
        ];
        given.into_iter().find_map(|(attr, is_late)| is_late.then_some(attr))
    }
}

/// The time of an RNR NAK, by the code of InfiniBand (IBA 9.7.5.2.8, `enum ib_rnr_timeout`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// Microseconds of each code.
const RNR_MICROS: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840, 5_120, 7_680,
    10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520,
];

impl RnrTimer {
    /// 655.36 ms, the code 0.
    pub const LONGEST: RnrTimer = RnrTimer(0);

    /// Returns the timer of a code; `None` above 31.
    #[must_use]
    pub const fn of_code(code: u8) -> Option<RnrTimer> {
        if (code as usize) < RNR_MICROS.len() { Some(RnrTimer(code)) } else { None }
    }

    /// Returns the shortest timer that is not shorter than `time`; at most [`RnrTimer::LONGEST`].
    #[must_use]
    pub fn at_least(time: Duration) -> RnrTimer {
        (1..RNR_MICROS.len() as u8).map(RnrTimer).find(|timer| timer.time() >= time).unwrap_or(RnrTimer::LONGEST)
    }

    /// Returns its code, 0 to 31.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns its time. Soft-RoCE rounds up to a tick of the kernel.
    #[must_use]
    pub fn time(self) -> Duration {
        Duration::from_micros(RNR_MICROS.get(usize::from(self.0)).copied().unwrap_or_default().into())
    }
}

/// The time-out of an ack: 4.096 µs, doubled as often as its code says (`timeout` of `struct ibv_qp_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// No time-out: a packet that is lost is waited for without limit, the code 0.
    pub const NEVER: AckTimeout = AckTimeout(0);
    const MAX: u8 = 31;
    const NANOS: u64 = 4096;

    /// Returns the time-out of a code; `None` above 31.
    #[must_use]
    pub const fn of_code(code: u8) -> Option<AckTimeout> {
        if code <= AckTimeout::MAX { Some(AckTimeout(code)) } else { None }
    }

    /// Returns the shortest time-out that is not shorter than `time`; at most 2.4 hours.
    #[must_use]
    pub fn at_least(time: Duration) -> AckTimeout {
        let is_enough = |code: &u8| Duration::from_nanos(AckTimeout::NANOS << code) >= time;
        AckTimeout((1..AckTimeout::MAX).find(is_enough).unwrap_or(AckTimeout::MAX))
    }

    /// Returns its code, 0 to 31.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns its time; `None` for [`AckTimeout::NEVER`]. Devices may wait up to four times as long (IBA 9.7.6.1.3).
    #[must_use]
    pub fn time(self) -> Option<Duration> {
        (self != AckTimeout::NEVER).then(|| Duration::from_nanos(AckTimeout::NANOS << self.0.min(AckTimeout::MAX)))
    }
}

columns! {
    /// An attribute of [`QpAttrs`].
    pub enum QpAttr {
        /// [`QpAttrs::min_rnr_timer`].
        MinRnrTimer = "min_rnr_timer",
        /// [`QpAttrs::timeout`].
        Timeout = "timeout",
        /// [`QpAttrs::retry_count`].
        RetryCount = "retry_count",
        /// [`QpAttrs::rnr_retry`].
        RnrRetry = "rnr_retry",
    }
}

/// The attributes of a QP were not changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("modify of QP {num}: {reason}")]
pub struct ModifyError {
    /// The number of the QP.
    pub num: u32,
    /// The reason.
    pub reason: ModifyReason,
}

/// The reason why attributes were not changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyReason {
    /// A count above its maximum.
    #[error("{attr} {asked}, more than the maximum of {max}")]
    TooLarge {
        /// The attribute.
        attr: QpAttr,
        /// The value that was requested.
        asked: u8,
        /// The maximum.
        max: u8,
    },
    /// The attribute can be set before the connect or accept.
    #[error("{0} is set before the connect or accept, and the QP is in {1}")]
    TooLate(QpAttr, QpState),
    /// librdmacm moves the QP, and sets all attributes itself. After ESTABLISHED [`QpAttrs::min_rnr_timer`] can be set.
    #[error("librdmacm sets the attributes itself: min_rnr_timer can be set once the QP is in RTS, and it is in {0}")]
    ByLibrary(QpState),
    /// The QP has failed, or is disconnected.
    #[error("the QP is in {0}")]
    Ended(QpState),
    /// A datagram QP repeats nothing.
    #[error("a datagram QP has no such attributes")]
    IsDatagram,
    /// TCP repeats for iWARP.
    #[error("{0} has no such attributes")]
    NotOfTransport(Transport),
    /// The errno of the device.
    #[error("{0}")]
    Device(Errno),
}

impl ModifyReason {
    /// Returns the errno that ibv_modify_qp(3) returns for it, or the one that fits.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            ModifyReason::TooLarge { .. }
            | ModifyReason::TooLate(..)
            | ModifyReason::Ended(_)
            | ModifyReason::IsDatagram => Errno::EINVAL,
            ModifyReason::ByLibrary(_) | ModifyReason::NotOfTransport(_) => Errno::EOPNOTSUPP,
            ModifyReason::Device(errno) => errno,
        }
    }
}

debug_in_words!(ModifyError, ModifyReason);

impl From<ModifyError> for Errno {
    fn from(error: ModifyError) -> Self {
        error.reason.errno()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_the_shortest_that_is_long_enough() {
        let micros = Duration::from_micros;
        for (time, code) in [(0, 1), (10, 1), (11, 2), (1_000, 14), (491_520, 31), (491_521, 0), (9_000_000, 0)] {
            assert_eq!(RnrTimer::at_least(micros(time)).code(), code, "{time}");
        }
        assert_eq!((RnrTimer::of_code(31), RnrTimer::of_code(32)), (Some(RnrTimer(31)), None));
        assert_eq!(RnrTimer::LONGEST.time(), micros(655_360));
        assert!((2..32).all(|code| RnrTimer(code).time() > RnrTimer(code - 1).time()));
    }

    #[test]
    fn a_timeout_doubles_with_its_code_and_0_is_none() {
        for (micros, code) in [(0, 1), (8, 1), (9, 2), (1_000_000, 18), (u64::MAX, 31)] {
            assert_eq!(AckTimeout::at_least(Duration::from_micros(micros)).code(), code, "{micros}");
        }
        assert_eq!(AckTimeout::of_code(14).and_then(AckTimeout::time), Some(Duration::from_nanos(67_108_864)));
        assert_eq!((AckTimeout::NEVER.time(), AckTimeout::of_code(32)), (None, None));
    }

    #[test]
    fn what_can_be_set_depends_on_the_state() {
        let timer = QpAttrs { min_rnr_timer: Some(RnrTimer::LONGEST), ..QpAttrs::default() };
        let all = QpAttrs { timeout: Some(AckTimeout::NEVER), retry_count: Some(7), rnr_retry: Some(0), ..timer };
        let counts = QpAttrs { min_rnr_timer: None, timeout: None, ..all };
        assert_eq!((all.check(QpState::INIT), timer.check(QpState::RTS)), (Ok(()), Ok(())));
        assert_eq!(timer.check(QpState::RTR), Err(ModifyReason::TooLate(QpAttr::MinRnrTimer, QpState::RTR)));
        assert_eq!(all.check(QpState::RTS), Err(ModifyReason::TooLate(QpAttr::Timeout, QpState::RTS)));
        assert_eq!(counts.check(QpState::RTR), Err(ModifyReason::TooLate(QpAttr::RetryCount, QpState::RTR)));
        assert_eq!(timer.check(QpState::ERR), Err(ModifyReason::Ended(QpState::ERR)));
        let many = QpAttrs { rnr_retry: Some(8), ..all };
        let too_large = ModifyReason::TooLarge { attr: QpAttr::RnrRetry, asked: 8, max: 7 };
        assert_eq!(many.check(QpState::INIT), Err(too_large));
        assert_eq!(timer.or(QpAttrs { rnr_retry: Some(1), ..all }), QpAttrs { rnr_retry: Some(1), ..all });
    }
}
