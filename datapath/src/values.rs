//! What is passed by value.

use std::fmt;

/// The bytes before each datagram that arrives: its global route header.
pub const GRH_LEN: usize = 40;

/// The opcode of a receive's completion (`IBV_WC_RECV`).
pub const RECV: u32 = 128;

/// How many work requests a QP takes (`struct ibv_qp_cap`); the rest is as the devices have it by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caps {
    /// Sends, reads and writes whose completions have not been polled.
    pub max_send_wr: u32,
    /// Receives likewise.
    pub max_recv_wr: u32,
}

impl Default for Caps {
    /// 16 of each, as the devices have it.
    fn default() -> Self {
        let cmid_sim::Caps { max_send_wr, max_recv_wr, .. } = cmid_sim::Caps::default();
        Caps { max_send_wr, max_recv_wr }
    }
}

/// A peer's memory, as the peer has described it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Where in it.
    pub addr: u64,
    /// Its remote key.
    pub rkey: u32,
}

/// Where one datagram goes.
#[derive(Clone, Copy, Debug)]
pub struct To<'a, A> {
    /// The way there.
    pub ah: &'a A,
    /// The QP there.
    pub qp_num: u32,
    /// The Q_Key that it requires.
    pub qkey: u32,
}

/// How a work request ended (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WcStatus(pub u32);

impl WcStatus {
    /// It was done.
    pub const SUCCESS: WcStatus = WcStatus(0);
    /// Not done: the QP was in the error state, or went there.
    pub const WR_FLUSH_ERR: WcStatus = WcStatus(5);
    /// The peer's memory may not be used so.
    pub const REM_ACCESS_ERR: WcStatus = WcStatus(10);
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            WcStatus::SUCCESS => f.write_str("success"),
            WcStatus::REM_ACCESS_ERR => f.write_str("remote access error"),
            WcStatus(other) => write!(f, "status {other}"),
        }
    }
}
