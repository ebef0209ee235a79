//! What a fabric is like: its seed, its faults, and which kernel it behaves as.

use std::time::Duration;

/// Where the fabric takes its time from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time stands still until [`Fabric::advance_to`](crate::Fabric::advance_to); nothing happens meanwhile.
    Virtual,
    /// The system's monotonic clock; one background thread delivers what is due.
    Real,
}

/// The kernel whose timers are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Linux 6.1: RoCE packet life time 18, so a time wait of 2048 ms and a request timer of 6144 ms.
    Linux6_1,
    /// Linux 6.12: RoCE packet life time 16, so a time wait of 512 ms and a request timer of 4608 ms.
    Linux6_12,
}

impl Flavour {
    /// The packet life time of a RoCE path, unless `RDMA_OPTION_ID_ACK_TIMEOUT` says otherwise
    /// (`cma_resolve_iboe_route`).
    pub(crate) const fn life_time(self) -> LifeTime {
        match self {
            Flavour::Linux6_1 => LifeTime(18),
            Flavour::Linux6_12 => LifeTime(16),
        }
    }
}

/// The packet life time of a path, as an exponent: what most timers of a connection are made from. Both sides use that
/// of the active one, which its REQ carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LifeTime(u8);

impl LifeTime {
    /// What an id with that ACK timeout resolves its route with; 0 means that it was not set. The messages have room
    /// for 5 bits.
    pub(crate) fn of_ack_timeout(ack_timeout: u8) -> Option<LifeTime> {
        Some(LifeTime(ack_timeout.checked_sub(1)?.min(31)))
    }

    /// Between two transmissions of a REQ, and of the active side's DREQ (`ib_send_cm_req`).
    pub(crate) const fn request_interval(self) -> Duration {
        exponent(self.0).saturating_mul(2).saturating_add(RESPONSE_TIMEOUT)
    }

    /// How long a connection stays in time wait (`cm_enter_timewait`, `cm_ack_timeout`).
    pub(crate) const fn time_wait(self) -> Duration {
        exponent(self.0 + 1)
    }

    /// Between two transmissions once the peer has sent MRA (`cm_mra_handler`).
    pub(crate) const fn mra_interval(self) -> Duration {
        exponent(24).saturating_add(self.time_wait())
    }
}

/// Between two transmissions of a REP and of the passive side's DREQ (`cm_req_handler`), and of a SIDR REQ
/// (`cma_resolve_ib_udp`).
pub(crate) const RESPONSE_TIMEOUT: Duration = exponent(20);

/// How often a message is sent before its sender gives up (`CMA_MAX_CM_RETRIES` and the first one).
pub(crate) const TRANSMISSIONS: u8 = 16;

/// The kernel's approximation of 4.096 µs · 2^x (`cm_convert_to_ms`).
const fn exponent(x: u8) -> Duration {
    Duration::from_millis(1 << x.saturating_sub(8))
}

/// What `ibv_rereg_mr` can do: the provider and the kernel's driver together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rereg {
    /// Nothing, as with soft-RoCE by way of rdma-core: its provider has no such operation. Neither have those of siw,
    /// efa, bnxt_re and mana.
    #[default]
    None,
    /// Another PD and other rights, as rxe's driver since Linux 6.5, if it is asked without its provider. Checks
    /// everything first.
    PdAccess,
    /// Everything, as mlx5. Checks everything first, as far as no fault is made
    /// ([`Host::fail_next_reregistration`](crate::Host::fail_next_reregistration)).
    All,
}

/// The fabric's knobs. [`Config::default`] is Linux 6.12 as it is, without faults, in virtual time.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Seeds every random choice: ephemeral ports and lost messages.
    pub seed: u64,
    /// How long a message takes from one id to another, also within a host.
    pub latency: Duration,
    /// The probability that a connection manager's message or a datagram is lost, 0 to 1. Data of a connection never
    /// is.
    pub loss: f64,
    /// Where time comes from.
    pub clock: Clock,
    /// Which kernel's timers are used.
    pub flavour: Flavour,
    /// Whether events that a migration moves wake who waits for the target channel. No kernel does that
    /// (`ucma_migrate_id` of 6.1, 6.12 and the mainline of 2026).
    pub wake_on_migrate: bool,
    /// Whether unread CONNECT_REQUESTs are lost when their listener migrates, as in every kernel: the event moves, the
    /// new connection stays on the old channel, and librdmacm swallows the event (`ucma_migrate_id`).
    pub listener_migrate_bug: bool,
    /// The most unread requests that a listener keeps, and what an unusable backlog means (`net.rdma_ucm.max_backlog`).
    pub max_backlog: u32,
    /// RDMA reads and atomics that a device serves at once; 128 is rxe's (`RXE_MAX_QP_RD_ATOM`).
    pub max_responder_resources: u8,
    /// RDMA reads and atomics that a device starts at once; 128 is rxe's (`RXE_MAX_QP_INIT_RD_ATOM`).
    pub max_initiator_depth: u8,
    /// The active MTU of every port, in bytes: what a datagram may carry. 1024 goes with an Ethernet MTU of 1500, 4096
    /// with jumbo frames.
    pub mtu: u32,
    /// What devices can re-register.
    pub rereg: Rereg,
    /// Whether a device of [`Rereg::All`] makes a new MR of a re-registration, with new keys, as mlx5 does where it
    /// cannot change the old one.
    pub new_keys_on_rereg: bool,
    /// Whether memory is kept from children of a fork (`ibv_fork_init`). Off, as in programs that do not ask for it
    /// and, since rdma-core 51, where the kernel copies pinned pages on fork.
    pub fork: bool,
    /// How many bytes the programs of a host may have pinned together, in whole pages (`RLIMIT_MEMLOCK`); `None` for no
    /// limit.
    pub lock_limit: Option<u64>,
    /// Whether regions, windows and domains of a device that was removed can be destroyed
    /// (`RDMAV_ALLOW_DISASSOC_DESTROY`). Otherwise that fails with `EIO`, and they stay.
    pub destroy_after_removal: bool,
    /// Whether data that is received or read is copied to memory when the completion is polled, to the address of the work
    /// request and without a look at a key, as by the providers of mlx5 and hns (scatter to CQE; they do so with up to 64 bytes).
    /// Otherwise the device writes it when it arrives, and checks the key.
    pub copy_at_poll: bool,
    /// Whether completions of a QP stay in the CQ when the QP is destroyed, as with soft-RoCE. Otherwise the library removes them
    /// (`__mlx5_cq_clean`).
    pub completions_outlive_qp: bool,
    /// Which time waits are due in the same tick of the kernel's timer wheel as the one that began before: bit n stands
    /// for the one that finds [`Counters::time_waits_in_turn`](crate::Counters::time_waits_in_turn) to be n. Those of a
    /// tick end with the newest: `enqueue_timer` adds a timer at the head of its bucket, and `expire_timers` takes the
    /// first one (`kernel/time/timer.c`). A tick is 32 ms long for timers of 512 ms, 256 ms for those of 2 s (250 Hz,
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
            listener_migrate_bug: true,
            max_backlog: 1024,
            max_responder_resources: 128,
            max_initiator_depth: 128,
            mtu: 1024,
            rereg: Rereg::None,
            new_keys_on_rereg: false,
            fork: false,
            lock_limit: None,
            destroy_after_removal: false,
            copy_at_poll: false,
            completions_outlive_qp: false,
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
        assert_eq!(new.time_wait(), Duration::from_millis(512));
        assert_eq!(old.time_wait(), Duration::from_millis(2048));
        assert_eq!(new.mra_interval(), Duration::from_millis(66_048));
    }

    #[test]
    fn an_ack_timeout_is_one_more_than_the_life_time() {
        assert_eq!(LifeTime::of_ack_timeout(0), None);
        assert_eq!(LifeTime::of_ack_timeout(17), Some(Flavour::Linux6_12.life_time()));
        let longest = LifeTime::of_ack_timeout(255).map(LifeTime::time_wait);
        assert_eq!(longest, Some(Duration::from_millis(1 << 24)));
    }
}
