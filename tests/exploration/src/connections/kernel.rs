//! The kernel's state of one id: which calls it accepts and which events it may report.

use cmid_proto::{Call, CmEvent};

/// The kernel's state of an id, as far as it determines later calls and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kernel {
    Idle,
    Bound,
    Resolving,
    Resolved,
    Routing,
    Routed,
    /// The REQ is sent.
    ReqSent,
    /// The REP of the peer has arrived.
    RepReceived,
    /// A request that the application has not answered.
    Requested,
    Accepting,
    Up,
    /// The disconnect is sent.
    Leaving,
    /// The peer's disconnect has arrived.
    Left,
    TimeWait,
    Over,
    Listening,
    /// The device is removed.
    Removed,
}

impl Kernel {
    /// The state after a call; `None` if the kernel returns EINVAL.
    pub(super) const fn after(self, call: &Call) -> Option<Kernel> {
        Some(match (call, self) {
            (Call::Bind { .. }, Kernel::Idle) => Kernel::Bound,
            (Call::ResolveAddr { .. }, Kernel::Idle | Kernel::Bound) => Kernel::Resolving,
            (Call::ResolveRoute { .. }, Kernel::Resolved) => Kernel::Routing,
            (Call::Listen { .. }, Kernel::Idle | Kernel::Bound) => Kernel::Listening,
            (Call::Connect { .. }, Kernel::Routed) => Kernel::ReqSent,
            (Call::Accept { .. }, Kernel::Requested) => Kernel::Accepting,
            (Call::Reject { .. }, Kernel::Requested | Kernel::RepReceived) => Kernel::Over,
            (Call::Establish { .. }, Kernel::RepReceived) => Kernel::Up,
            (Call::Disconnect { .. }, Kernel::Up) => Kernel::Leaving,
            (Call::Disconnect { .. }, Kernel::Left) => Kernel::TimeWait,
            (Call::Disconnect { .. }, Kernel::Leaving | Kernel::TimeWait | Kernel::Over) => self,
            _ => return None,
        })
    }

    /// The state after a call that the kernel has refused: as before, with two exceptions (`table::after_failure`).
    pub(super) const fn after_failure(self, call: &Call) -> Kernel {
        match (call, self) {
            (Call::Accept { .. }, Kernel::Requested) => Kernel::Over,
            (Call::ResolveAddr { .. }, Kernel::Idle) => Kernel::Bound,
            _ => self,
        }
    }

    /// The events that it may report, and the state after each.
    pub(super) const fn reports(self) -> &'static [(CmEvent, Kernel)] {
        match self {
            Kernel::Resolving => &[(CmEvent::AddrResolved, Kernel::Resolved), (CmEvent::AddrError, Kernel::Bound)],
            Kernel::Routing => &[(CmEvent::RouteResolved, Kernel::Routed), (CmEvent::RouteError, Kernel::Resolved)],
            Kernel::ReqSent => &[(CmEvent::ConnectResponse, Kernel::RepReceived), (CmEvent::Rejected, Kernel::Over)],
            Kernel::RepReceived => &[(CmEvent::Rejected, Kernel::Over)],
            Kernel::Accepting => &[
                (CmEvent::Established, Kernel::Up),
                (CmEvent::Disconnected, Kernel::Left),
                (CmEvent::Unreachable, Kernel::Over),
            ],
            Kernel::Up => &[(CmEvent::Disconnected, Kernel::Left)],
            Kernel::Leaving => &[(CmEvent::Disconnected, Kernel::TimeWait)],
            Kernel::TimeWait => &[(CmEvent::TimewaitExit, Kernel::Over)],
            Kernel::Idle
            | Kernel::Bound
            | Kernel::Resolved
            | Kernel::Routed
            | Kernel::Requested
            | Kernel::Left
            | Kernel::Over
            | Kernel::Listening
            | Kernel::Removed => &[],
        }
    }

    /// Whether the id has a device, which can be removed or change its link address.
    pub(super) const fn has_device(self) -> bool {
        !matches!(self, Kernel::Idle | Kernel::Removed)
    }
}
