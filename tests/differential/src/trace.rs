//! The trace of one side of a run, and the comparison of two traces.
//!
//! Traces omit what rule 6 of the specification omits (its section 15): times, pointer values, ephemeral ports, and
//! QP numbers that the device chose.

use std::fmt;
use std::net::SocketAddr;

use cmid_proto::{ChannelKey, Datagram, Errno, Pollable, RawEvent, ReceivedParam};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::address::{Numbers, PORTS, QP_NUMS};
use crate::program::ChannelNo;

/// One observation of a side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The step; one past the last for the end.
    pub step: usize,
    /// The observation.
    pub what: Seen,
}

/// The kinds of observations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A call, and what it returned.
    Call {
        /// The function's name.
        name: &'static str,
        /// The call with its arguments.
        text: String,
        /// `ok`, or the errno.
        result: String,
    },
    /// An event.
    Event {
        /// Its channel.
        channel: ChannelNo,
        /// Its type.
        kind: String,
        /// Its status.
        status: i32,
        /// Its id.
        id: String,
        /// Its other contents.
        rest: String,
    },
    /// A state.
    State(String),
    /// A failure of the core's own check. Such a trace never agrees.
    Broken(String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:3} ", self.step)?;
        match &self.what {
            Seen::Call { text, result, .. } => write!(f, "{text} -> {result}"),
            Seen::Event { channel, kind, status, id, rest } => write!(f, "[ch{channel}] {id} {kind}({status}) {rest}"),
            Seen::State(text) => f.write_str(text),
            Seen::Broken(text) => write!(f, "BROKEN: {text}"),
        }
    }
}

/// The observations of one side, in order.
pub type SideTrace = Vec<Line>;

/// The observations of both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Side a.
    pub a: SideTrace,
    /// Side b.
    pub b: SideTrace,
}

impl Trace {
    /// Whether both are equal and contain no failure of a core's check.
    #[must_use]
    pub fn agrees(&self, other: &Trace) -> bool {
        let broken = |line: &Line| matches!(line.what, Seen::Broken(_));
        self == other && !self.a.iter().chain(&self.b).any(broken)
    }

    /// Replaces the errnos of QPs that could not be changed, or attached to a group, by librdmacm's -1. Not for iWARP,
    /// where the kernel makes CONNECT_ERROR.
    pub fn drop_errnos(&mut self) {
        for line in self.a.iter_mut().chain(&mut self.b) {
            if let Seen::Event { kind, status, .. } = &mut line.what
                && ["CONNECT_ERROR", "MULTICAST_ERROR"].contains(&kind.as_str())
            {
                *status = -1;
            }
        }
    }
}

/// Whether a channel is readable now, according to a fresh poll.
pub(crate) fn is_readable(device: &impl Pollable, on: ChannelKey) -> bool {
    let Some(fd) = device.fd(on) else { return false };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&now)), Ok(1))
}

/// The same as a line, recorded before each read: a descriptor must be readable if there is an event.
pub(crate) fn readable(device: &impl Pollable, on: ChannelKey, channel: ChannelNo) -> Seen {
    Seen::State(format!("[ch{channel}] {}", if is_readable(device, on) { "readable" } else { "quiet" }))
}

/// Formats a call's result.
#[must_use]
pub fn result_of<E: fmt::Display>(result: &Result<(), E>) -> String {
    result.as_ref().map_or_else(ToString::to_string, |()| "ok".to_owned())
}

/// Formats an errno or a value.
#[must_use]
pub fn value_of<T: fmt::Debug>(value: Result<T, Errno>) -> String {
    value.map_or_else(|errno| errno.to_string(), |value| format!("{value:?}"))
}

/// Formats an address without an ephemeral port.
#[must_use]
pub fn address(addr: SocketAddr, numbers: Numbers) -> String {
    let first = numbers.port;
    let ip = match addr {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), link(v6.scope_id(), numbers)),
        SocketAddr::V4(_) | SocketAddr::V6(_) => addr.ip().to_string(),
    };
    match addr.port() {
        port if (first..first + PORTS).contains(&port) => format!("{ip}:p{}", port - first),
        0 => format!("{ip}:0"),
        _ => format!("{ip}:*"),
    }
}

fn link(scope: u32, numbers: Numbers) -> &'static str {
    if scope == numbers.link { "link" } else { "other" }
}

/// Formats a QP number, if the program has chosen it.
#[must_use]
pub fn qp_num(number: u32, numbers: Numbers) -> String {
    let first = numbers.qp_num;
    match number {
        0 => "0".to_owned(),
        0x00ff_ffff => "multicast".to_owned(),
        given if (first..first + QP_NUMS).contains(&given) => format!("q{}", given - first),
        _ => "*".to_owned(),
    }
}

/// Formats the contents of an event besides its type and status.
#[must_use]
pub fn contents(
    param: ReceivedParam,
    datagram: Option<Datagram>,
    group: Option<u64>,
    private_data: &[u8],
    numbers: Numbers,
) -> String {
    let mut text = format!(
        "rr {} id {} fc {} retry {} rnr {} srq {} qp {}",
        param.responder_resources,
        param.initiator_depth,
        u8::from(param.flow_control),
        param.retry_count,
        param.rnr_retry_count,
        u8::from(param.srq),
        qp_num(param.qp_num, numbers)
    );
    if let Some(Datagram { qp_num: number, qkey, path }) = datagram {
        // The flow label is derived from ephemeral ports, and the index of the source GID is a position in a table.
        let grh = path.grh.map(|grh| (grh.dgid, grh.hop_limit, grh.traffic_class));
        let (number, port) = (qp_num(number, numbers), path.port_num);
        text += &format!(" to {number} qkey {qkey:#x} {grh:02x?} sl {} port {port}", path.sl);
    }
    if let Some(group) = group {
        text += &format!(" group {group}");
    }
    let used = private_data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    text + &format!(" data {} of {}", hex(&private_data[..used]), private_data.len())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Formats the contents of a device's event.
#[must_use]
pub fn contents_of(raw: &RawEvent<&[u8]>, numbers: Numbers) -> String {
    contents(raw.param, raw.datagram, raw.group.map(|group| group.slot() as u64), raw.private_data, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(channel: u8, kind: &str, id: &str) -> Line {
        let (kind, id) = (kind.to_owned(), id.to_owned());
        Line { step: 0, what: Seen::Event { channel, kind, status: 0, id, rest: String::new() } }
    }

    #[test]
    fn a_core_that_is_broken_agrees_with_nothing() {
        let broken = |what| Trace { a: vec![Line { step: 0, what }], b: Vec::new() };
        let fine = broken(Seen::State("fine".to_owned()));
        assert!(fine.agrees(&fine));
        let broken = broken(Seen::Broken("its own check".to_owned()));
        assert!(!broken.agrees(&broken));
    }

    #[test]
    fn events_keep_their_order() {
        let one = vec![event(0, "DISCONNECTED", "x"), event(0, "DISCONNECTED", "y")];
        let other = vec![event(0, "DISCONNECTED", "y"), event(0, "DISCONNECTED", "x")];
        let trace = |a| Trace { a, b: Vec::new() };
        assert!(!trace(one).agrees(&trace(other)));
    }
}
