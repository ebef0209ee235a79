//! The bounds of a world: its ids and the possible actions.

use cmid_proto::{Acks, ChannelKey, ConnParam, Core, IdKey, Limits, PortSpace, RejectReason, Request, RequestKind};

use super::witness::Witness;

/// The role of an id. The application submits the requests of the role, unless the core refuses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Is bound, and gets changes of its link address.
    Mover,
    /// Resolves, connects, disconnects.
    Dialer,
    /// Listens.
    Listener,
    /// The id of a connection request.
    Child,
}

/// A bounded world. Within the bounds all actions may occur in any order and any number of times.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Its name in the report.
    pub name: &'static str,
    /// The subject of the check.
    pub target: &'static str,
    /// The ids that the application creates, in this order.
    pub roles: &'static [Role],
    /// The channels that the application has opened.
    pub channels: &'static [Acks],
    /// The limits of the core.
    pub limits: Limits,
    /// Maximum number of events of one id that are unread, undelivered or not acked.
    pub events: usize,
    /// The same maximum for all ids together.
    pub events_in_all: usize,
    /// The application does not move ids of these roles.
    pub still: &'static [Role],
    /// Maximum number of requests to the listeners.
    pub children: u8,
    /// Whether ids may enter synchronous mode.
    pub sync: bool,
    /// Maximum number of listens and moves into synchronous mode: each opens a channel with a new key.
    pub private_channels: u8,
    /// Whether calls may fail.
    pub failures: bool,
    /// Whether the device may be removed.
    pub removal: bool,
    /// Whether requests may have deadlines, which pass at any time.
    pub deadlines: bool,
    /// Whether ack tokens may be lost: an id that owes acks may be destroyed without them.
    pub lost: bool,
    /// Whether an id may be moved to the channel that it is on.
    pub in_place: bool,
    /// Witnesses that must occur; otherwise the check is vacuous.
    pub shows: &'static [Witness],
}

impl Scene {
    /// Two channels with explicit acks, without failures.
    pub(super) const PLAIN: Scene = Scene {
        name: "",
        target: "",
        roles: &[],
        channels: &[Acks::Explicit, Acks::Explicit],
        limits: Limits { ids: 4, channels: 4, events: 16, groups: 0, core: Some(1), ..Limits::SINGLE },
        events: 2,
        events_in_all: 2,
        still: &[],
        children: 0,
        sync: false,
        private_channels: 0,
        failures: false,
        removal: false,
        deadlines: false,
        lost: false,
        in_place: false,
        shows: &[],
    };

    /// The requests that the application may submit for an id of a role, refused or not.
    pub(super) fn requests(
        &self,
        core: &Core,
        id: IdKey,
        role: Role,
        channels: &[ChannelKey],
    ) -> Vec<Request<'static>> {
        let mut all = role.requests().to_vec();
        let home = core.channel(id);
        if !self.still.contains(&role) {
            let elsewhere = channels.iter().filter(|&&channel| self.in_place || home != Some(channel));
            all.extend(elsewhere.map(|&to| Request::Migrate { to: Some(to) }));
            all.extend(self.sync.then_some(Request::Migrate { to: None }));
        }
        all.push(Request::Destroy);
        // Without owed acks this is the same as Destroy.
        all.extend((self.lost && core.id_info(id).map_or(0, |it| it.owed) > 0).then_some(Request::DestroyNow));
        all
    }

    /// Whether a request makes the core open a channel.
    pub(super) const fn opens_channel(request: &Request<'_>) -> bool {
        matches!(request, Request::Listen { .. } | Request::Migrate { to: None })
    }

    /// Whether a deadline has an effect on a request.
    pub(super) const fn may_wait(request_kind: RequestKind) -> bool {
        matches!(
            request_kind,
            RequestKind::ResolveAddr
                | RequestKind::ResolveRoute
                | RequestKind::Connect
                | RequestKind::Accept
                | RequestKind::Disconnect
                | RequestKind::Teardown
                | RequestKind::GetRequest
                | RequestKind::Migrate
                | RequestKind::Destroy
        )
    }
}

const ADDR: core::net::SocketAddr =
    core::net::SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1)), 7471);

/// A connection needs only a QP number.
const PARAM: ConnParam = ConnParam {
    responder_resources: 1,
    initiator_depth: 1,
    flow_control: false,
    retry_count: 7,
    rnr_retry_count: 7,
    srq: false,
    qp_num: 1,
};

const BIND: Request<'static> = Request::Bind { addr: ADDR };
const REJECT: Request<'static> = Request::Reject { reason: RejectReason::Consumer, private_data: &[] };

impl Role {
    pub(super) const fn port_space(self) -> PortSpace {
        match self {
            Role::Mover | Role::Dialer | Role::Listener | Role::Child => PortSpace::Tcp,
        }
    }

    const fn requests(self) -> &'static [Request<'static>] {
        match self {
            Role::Mover => &[BIND],
            Role::Dialer => &[
                Request::ResolveAddr { src: None, dst: ADDR },
                Request::ResolveRoute,
                Request::Connect { param: PARAM, private_data: &[] },
                Request::Establish,
                REJECT,
                Request::Disconnect,
                Request::Teardown,
            ],
            Role::Listener => &[BIND, Request::Listen { backlog: 1 }, Request::GetRequest],
            Role::Child => {
                &[Request::Accept { param: PARAM, private_data: &[] }, REJECT, Request::Disconnect, Request::Teardown]
            }
        }
    }
}
