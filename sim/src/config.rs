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
    /// The packet life time of a RoCE path, as an exponent (`cma_resolve_iboe_route`).
    const fn packet_life_time(self) -> u32 {
        match self {
            Flavour::Linux6_1 => 18,
            Flavour::Linux6_12 => 16,
        }
    }

    /// Between two transmissions of a REQ, and of the active side's DREQ (`ib_send_cm_req`).
    pub(crate) const fn request_interval(self) -> Duration {
        exponent(self.packet_life_time()).saturating_mul(2).saturating_add(RESPONSE_TIMEOUT)
    }

    /// How long a connection stays in time wait (`cm_enter_timewait`, `cm_ack_timeout`).
    pub(crate) const fn time_wait(self) -> Duration {
        exponent(self.packet_life_time() + 1)
    }

    /// Between two transmissions once the peer has sent MRA (`cm_mra_handler`).
    pub(crate) const fn mra_interval(self) -> Duration {
        exponent(24).saturating_add(self.time_wait())
    }
}

/// Between two transmissions of a REP, and of the passive side's DREQ (`cm_req_handler`).
pub(crate) const RESPONSE_TIMEOUT: Duration = exponent(20);

/// How often a message is sent before its sender gives up (`CMA_MAX_CM_RETRIES` and the first one).
pub(crate) const TRANSMISSIONS: u8 = 16;

/// The kernel's approximation of 4.096 µs · 2^x (`cm_convert_to_ms`).
const fn exponent(x: u32) -> Duration {
    Duration::from_millis(1 << x.saturating_sub(8))
}

/// The fabric's knobs. [`Config::default`] is Linux 6.12 as it is, without faults, in virtual time.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Seeds every random choice: ephemeral ports and lost messages.
    pub seed: u64,
    /// How long a message takes from one id to another, also within a host.
    pub latency: Duration,
    /// The probability that a connection manager's message is lost, 0 to 1. Data is never lost.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timers_are_those_that_were_measured() {
        assert_eq!(Flavour::Linux6_12.request_interval(), Duration::from_millis(4608));
        assert_eq!(Flavour::Linux6_1.request_interval(), Duration::from_millis(6144));
        assert_eq!(RESPONSE_TIMEOUT, Duration::from_millis(4096));
        assert_eq!(Flavour::Linux6_12.time_wait(), Duration::from_millis(512));
        assert_eq!(Flavour::Linux6_1.time_wait(), Duration::from_millis(2048));
        assert_eq!(Flavour::Linux6_12.mra_interval(), Duration::from_millis(66_048));
    }
}
