//! Configuration of a fabric: seed, faults, kernel version.

use std::time::Duration;

/// The source of the fabric's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time advances only in [`Fabric::advance_to`](crate::Fabric::advance_to). A driver that waits needs
    /// [`Clock::Real`]: under this clock an event comes only with an advance.
    Virtual,
    /// The system's monotonic clock; one background thread processes due timers.
    Real,
}

/// The kernel version of the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Linux 6.1: RoCE packet life time 18, so a time wait of 2048 ms and a request timer of 6144 ms.
    Linux6_1,
    /// Linux 6.12: RoCE packet life time 16, so a time wait of 512 ms and a request timer of 4608 ms.
    Linux6_12,
}

impl Flavour {
    /// The packet life time of a RoCE path, unless set by `RDMA_OPTION_ID_ACK_TIMEOUT` (`cma_resolve_iboe_route`).
    pub(crate) const fn life_time(self) -> LifeTime {
        match self {
            Flavour::Linux6_1 => LifeTime(18),
            Flavour::Linux6_12 => LifeTime(16),
        }
    }
}

/// The packet life time of a path, as an exponent; most timers of a connection derive from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LifeTime(u8);

impl LifeTime {
    /// Returns the life time for an id's ACK timeout; `None` for 0, which means not set. The field in the messages has
    /// 5 bits.
    pub(crate) fn of_ack_timeout(ack_timeout: u8) -> Option<LifeTime> {
        Some(LifeTime(ack_timeout.checked_sub(1)?.min(31)))
    }

    /// Interval between two transmissions of a REQ, and of the active side's DREQ (`ib_send_cm_req`).
    pub(crate) const fn request_interval(self) -> Duration {
        exponent(self.0).saturating_mul(2).saturating_add(RESPONSE_TIMEOUT)
    }

    /// The time-out of the path, for [`PathTimeout`] (`cm_init_av_by_path`).
    pub(crate) const fn timeout(self) -> PathTimeout {
        PathTimeout(self.0 + 1)
    }
}

/// The time-out of a connection's path, as an exponent (`av.timeout`): that of an ACK of the QP, and of the time wait.
/// The REQ carries that of the active side, with the ACK delay of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathTimeout(pub(crate) u8);

impl PathTimeout {
    /// The same with the ACK delay of soft-RoCE (`cm_ack_timeout`, `RXE_LOCAL_CA_ACK_DELAY`): the longer of both, and
    /// one more if the other is at least half as long. The field in the messages has 5 bits.
    pub(crate) fn with_ack_delay(self) -> PathTimeout {
        let (longer, shorter) = (self.0.max(ACK_DELAY), self.0.min(ACK_DELAY));
        PathTimeout((longer + u8::from(shorter + 1 >= longer)).min(31))
    }

    /// Duration of the time wait of a connection (`cm_enter_timewait`).
    pub(crate) const fn time_wait(self) -> Duration {
        exponent(self.0)
    }

    /// Interval between two transmissions after an MRA of the peer (`cm_mra_handler`).
    pub(crate) const fn mra_interval(self) -> Duration {
        exponent(24).saturating_add(self.time_wait())
    }
}

/// `RXE_LOCAL_CA_ACK_DELAY`.
const ACK_DELAY: u8 = 15;

/// Interval between two transmissions of a REP and of the passive side's DREQ (`cm_req_handler`), and of a SIDR REQ
/// (`cma_resolve_ib_udp`).
pub(crate) const RESPONSE_TIMEOUT: Duration = exponent(20);

/// Maximum number of transmissions of a message: `CMA_MAX_CM_RETRIES` and the first one.
pub(crate) const TRANSMISSIONS: u8 = 16;

/// The kernel's approximation of 4.096 µs · 2^x (`cm_convert_to_ms`).
const fn exponent(x: u8) -> Duration {
    Duration::from_millis(1 << x.saturating_sub(8))
}

/// The capabilities of `ibv_rereg_mr`: the provider and the kernel's driver together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rereg {
    /// None, as with soft-RoCE through rdma-core: its provider does not implement the operation. Those of siw, efa,
    /// bnxt_re and mana do not either.
    #[default]
    None,
    /// Changes of the PD and the access rights, as rxe's driver since Linux 6.5 supports without its provider. The
    /// driver checks all arguments before any change.
    PdAccess,
    /// All changes, as mlx5. Checks everything before any change, unless a fault is injected
    /// ([`Host::fail_next_reregistration`](crate::Host::fail_next_reregistration)).
    All,
}

/// Configuration of a fabric. [`Config::default`] is Linux 6.12 with its defects, without faults, in virtual time.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Seeds every random choice: ephemeral ports and lost messages.
    pub seed: u64,
    /// The time that a message takes from one id to another, also within a host.
    pub latency: Duration,
    /// The probability that a connection manager's message or a datagram is lost, 0 to 1. It is a
    /// [`Rule`](crate::Rule) for all hosts; others may lose data of connections too.
    pub loss: f64,
    /// The source of time.
    pub clock: Clock,
    /// The kernel version of the timers.
    pub flavour: Flavour,
    /// Whether events that a migration moves wake a thread that waits for the target channel. No kernel does that
    /// (`ucma_migrate_id` of 6.1, 6.12 and the mainline of 2026).
    pub wake_on_migrate: bool,
    /// Maximum number of unread requests of a listener, and the replacement of an invalid backlog
    /// (`net.rdma_ucm.max_backlog`).
    pub max_backlog: u32,
    /// Maximum number of RDMA reads and atomics that a device serves at a time; 128 is rxe's (`RXE_MAX_QP_RD_ATOM`).
    pub max_responder_resources: u8,
    /// Maximum number of RDMA reads and atomics that a device starts at a time; 128 is rxe's
    /// (`RXE_MAX_QP_INIT_RD_ATOM`).
    pub max_initiator_depth: u8,
    /// The active MTU of every port, in bytes: the maximum size of a datagram. 1024 corresponds to an Ethernet MTU of
    /// 1500, 4096 to jumbo frames.
    pub mtu: u32,
    /// The re-registrations that devices support.
    pub rereg: Rereg,
    /// Whether a re-registration on a device of [`Rereg::All`] creates a new MR with new keys, as mlx5 does if it
    /// cannot change the old one.
    pub new_keys_on_rereg: bool,
    /// Maximum number of bytes that the programs of a host may pin together, in whole pages (`RLIMIT_MEMLOCK`);
    /// `None` for no limit.
    pub lock_limit: Option<u64>,
    /// Whether regions, windows and domains of a removed device can be destroyed (`RDMAV_ALLOW_DISASSOC_DESTROY`).
    /// Otherwise that fails with `EIO`, and they remain.
    pub destroy_after_removal: bool,
    /// Whether received or read data is copied to memory when the completion is polled, as by the providers of mlx5
    /// and hns (scatter to CQE, for up to 64 bytes). The copy goes to the address of the work request, without a key
    /// check. Otherwise the device writes it on arrival, and checks the key.
    pub copy_at_poll: bool,
    /// Whether a device reads the bytes of a send or a write when they arrive at the peer, as it may at any time until their
    /// completion. Otherwise it reads them in the post, and again for each retry. [`check`](crate::check) sets it in every second world:
    /// memory that a program changes too early is then sent as it has become.
    pub reads_late: bool,
    /// Whether completions of a destroyed QP stay in the CQ, as with soft-RoCE. Otherwise the library removes them
    /// (`__mlx5_cq_clean`).
    pub completions_outlive_qp: bool,
    /// Whether a window gives access to the whole of its region, as on rxe, which does not check the range of a window
    /// (`check_rkey`). Otherwise it gives access to the range that it is bound to, as hardware does.
    pub windows_without_range: bool,
    /// Whether the key of a region or window that is gone is that of the next one, as from mlx5's cache of keys
    /// (`mlx5_mr_cache_alloc`). Otherwise each has a key of its own.
    pub reuses_keys: bool,
    /// Whether a device checks the key of a peer's write or atomic operation, and copies it later, after the completion of an
    /// invalidation that begins meanwhile (four times [`Config::latency`]), as soft-RoCE may on several CPUs (`check_rkey`, `write_data_in`). A deregistration waits for the copy, and the end of the QP. An
    /// invalidation, the deallocation of a window and a re-registration in place do not. On iWARP a deregistration does not either:
    /// a change of the attributes of the QP does (`siw_rx_umem`). Otherwise it is copied at once.
    pub copies_late: bool,
    /// Selects the time waits, and on iWARP the waits for an answer, that are due in the same tick of the kernel's timer
    /// wheel as the previous one. Bit n applies to the time wait that begins when
    /// [`Counters::time_waits_in_turn`](crate::Counters::time_waits_in_turn) is n. The time waits of a tick end
    /// newest first: `enqueue_timer` adds a timer at the head of its bucket, and `expire_timers` takes the first one
    /// (`kernel/time/timer.c`). A tick is 32 ms long for timers of 512 ms, 256 ms for those of 2 s (250 Hz,
    /// `LVL_GRAN`). With 0, the default, all end in the order in which they began.
    pub time_waits_of_one_tick: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            seed: 0,
            latency: Duration::from_micros(12),
            loss: 0.0,
            clock: Clock::Virtual,
            flavour: Flavour::Linux6_12,
            wake_on_migrate: false,
            max_backlog: 1024,
            max_responder_resources: 128,
            max_initiator_depth: 128,
            mtu: 1024,
            rereg: Rereg::None,
            new_keys_on_rereg: false,
            lock_limit: None,
            destroy_after_removal: false,
            copy_at_poll: false,
            reads_late: false,
            completions_outlive_qp: false,
            windows_without_range: false,
            reuses_keys: false,
            copies_late: false,
            time_waits_of_one_tick: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timers_are_those_that_were_measured() {
        let (old, new) = (Flavour::Linux6_1.life_time(), Flavour::Linux6_12.life_time());
        assert_eq!(new.request_interval(), Duration::from_millis(4608));
        assert_eq!(old.request_interval(), Duration::from_millis(6144));
        assert_eq!(RESPONSE_TIMEOUT, Duration::from_millis(4096));
        assert_eq!(new.timeout().time_wait(), Duration::from_millis(512));
        assert_eq!(old.timeout().time_wait(), Duration::from_millis(2048));
        assert_eq!(new.timeout().mra_interval(), Duration::from_millis(66_048));
    }

    #[test]
    fn an_ack_timeout_is_one_more_than_the_life_time() {
        assert_eq!(LifeTime::of_ack_timeout(0), None);
        assert_eq!(LifeTime::of_ack_timeout(17), Some(Flavour::Linux6_12.life_time()));
        let with_delay = |code| LifeTime::of_ack_timeout(code).map(|life_time| life_time.timeout().with_ack_delay().0);
        let codes = [1, 13, 14, 15, 16, 17, 18, 31, 32, 255];
        assert_eq!(codes.map(with_delay), [15, 15, 16, 16, 17, 17, 18, 31, 31, 31].map(Some));
    }
}
