//! Requests and answers, chosen by the input.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use cmid_proto::{
    Acks, ChannelKey, CmOption, ConnParam, Ece, Errno, GroupKey, Limits, Outcome, PortSpace, RejectReason, Request,
    Time,
};

use crate::input::Input;

/// Addresses that mean different things to the core: a device, a wildcard, the loopback, another family.
const ADDRS: [SocketAddr; 5] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 7471),
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 7471),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)), 7471),
];

/// Multicast groups: few, so that requests often name an existing group.
pub(crate) const GROUPS: [SocketAddr; 3] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 1, 1, 1)), 0),
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 1, 1, 2)), 0),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1)), 0),
];

/// Lengths of private data around every limit.
const LENGTHS: [usize; 17] = [0, 1, 5, 55, 56, 57, 136, 137, 148, 149, 180, 181, 196, 197, 216, 217, 255];

/// Errors of every kind: transient, of state, of the device, and nonsense.
const ERRNOS: [Errno; 10] = [
    Errno::ENOMEM,
    Errno::EINVAL,
    Errno::ENETUNREACH,
    Errno::ENODEV,
    Errno::EADDRINUSE,
    Errno::EBADF,
    Errno(0),
    Errno(-1),
    Errno(i32::MIN),
    Errno(524),
];

/// Bytes that are all different from their neighbours.
static FILL: [u8; 256] = {
    let mut fill = [0; 256];
    let mut at = 0;
    while at < fill.len() {
        fill[at] = (at as u8).wrapping_mul(37) | 1;
        at += 1;
    }
    fill
};

/// Limits: tight, or with some room.
pub(crate) fn limits(input: &mut Input<'_>) -> Limits {
    const CHOICE: [Limits; 4] = [
        Limits { ids: 12, channels: 10, events: 40, groups: 8, ..Limits::SINGLE },
        Limits {
            ids: 6,
            reserved_ids: 1,
            channels: 5,
            events: 6,
            reserved_events: 2,
            channel_events: 3,
            groups: 3,
            ..Limits::SINGLE
        },
        Limits { ids: 3, channels: 3, events: 2, groups: 1, ..Limits::SINGLE },
        Limits { ids: 8, channels: 16, events: 1, groups: 4, ..Limits::SINGLE },
    ];
    CHOICE[input.below(CHOICE.len())]
}

/// Private data of some length, perhaps too long.
pub(crate) fn private_data(input: &mut Input<'_>) -> &'static [u8] {
    let choice = input.below(8 * LENGTHS.len());
    let (len, from) = (LENGTHS[choice % LENGTHS.len()], choice / LENGTHS.len());
    &FILL[from..(from + len).min(FILL.len())]
}

/// How acks are given on a channel.
pub(crate) fn acks(input: &mut Input<'_>) -> Acks {
    [Acks::Explicit, Acks::OnDelivery][input.below(2)]
}

/// A port space.
pub(crate) fn port_space(input: &mut Input<'_>) -> PortSpace {
    PortSpace::ALL[input.below(PortSpace::COUNT)]
}

/// The errno of a failed call.
pub(crate) fn errno(input: &mut Input<'_>) -> Errno {
    ERRNOS[input.below(ERRNOS.len())]
}

/// Success, mostly.
pub(crate) fn outcome(input: &mut Input<'_>) -> Outcome {
    if input.once_in(4) { Err(errno(input)) } else { Ok(()) }
}

/// A deadline: none, soon, later, or past.
pub(crate) fn deadline(input: &mut Input<'_>, now: Time) -> Time {
    match input.below(64) {
        0..40 => Time::NEVER,
        63 => now,
        soon => Time(now.0.saturating_add(soon as u64 - 39)),
    }
}

fn param(input: &mut Input<'_>) -> ConnParam {
    ConnParam { qp_num: input.below(4) as u32, ..ConnParam::default() }
}

/// One address.
pub(crate) fn addr(input: &mut Input<'_>) -> SocketAddr {
    ADDRS[input.below(2 * ADDRS.len()).saturating_sub(ADDRS.len())]
}

/// Any request, about any of these.
pub(crate) fn request(input: &mut Input<'_>, channels: &[ChannelKey], groups: &[GroupKey]) -> Request<'static> {
    let to_some_channel = |input: &mut Input<'_>| Request::Migrate { to: input.pick(channels) };
    match input.below(26) {
        0 => Request::Bind { addr: addr(input) },
        1 => Request::ResolveAddr { src: None, dst: addr(input) },
        2 => Request::ResolveAddr { src: Some(addr(input)), dst: addr(input) },
        3 => Request::ResolveRoute,
        4 => Request::Listen { backlog: input.below(3) as i32 - 1 },
        5 => Request::AttachQp,
        6 => Request::DetachQp,
        7 => Request::Connect { param: param(input), private_data: private_data(input) },
        8 => Request::Accept { param: param(input), private_data: private_data(input) },
        9 => {
            let reason = [RejectReason::Consumer, RejectReason::Ece][input.below(2)];
            Request::Reject { reason, private_data: private_data(input) }
        }
        10 => Request::Establish,
        11 => Request::Disconnect,
        12 => Request::Teardown,
        13 => Request::Notify,
        14 => Request::GetRequest,
        15 | 16 => Request::Join { addr: GROUPS[input.below(GROUPS.len())], send_only: input.once_in(4) },
        17 => match input.pick(groups) {
            Some(group) => Request::Leave { group },
            None => Request::Notify,
        },
        18 => Request::SetOption { option: option(input) },
        19 => Request::SetEce { ece: Ece { vendor_id: input.below(2) as u32, options: 7 } },
        20..=22 => to_some_channel(input),
        23 | 24 => Request::Migrate { to: None },
        _ if input.once_in(3) => Request::DestroyNow,
        _ => Request::Destroy,
    }
}

fn option(input: &mut Input<'_>) -> CmOption {
    match input.below(5) {
        0 => CmOption::Tos(1),
        1 => CmOption::ReuseAddr(true),
        2 => CmOption::ReuseAddr(false),
        3 => CmOption::AfOnly(true),
        _ => CmOption::AckTimeout(14),
    }
}
