//! Ids in every state, of either service.

use cmid_proto::{Acks, ChannelKey, CmEvent, GroupKey, IdKey, PortSpace, RawEvent, Request, Service, State};

use crate::fixture::{BIND, CoreFixture, LISTEN, RESOLVE, accept, cm, connect, group_addr, raw};

/// An id in a state, on channel `here`, and a second channel.
pub(crate) struct IdInState {
    pub(crate) fixture: CoreFixture,
    pub(crate) id: IdKey,
    pub(crate) here: ChannelKey,
    pub(crate) there: ChannelKey,
    pub(crate) group: Option<GroupKey>,
}

pub(crate) const SERVICES: [Service; 2] = [Service::Connected, Service::Datagram];

/// The group that ids for datagrams are members of.
pub(crate) const GROUP: u8 = 77;

/// An id in `state`; `None` if no id of the service reaches it.
pub(crate) fn id_in_state(state: State, service: Service) -> Option<IdInState> {
    match service {
        Service::Connected if matches!(state, State::SidrReqSent | State::SidrReqReceived | State::SidrResolved) => {
            None
        }
        Service::Connected => {
            let (mut fixture, here, there) = CoreFixture::on_two(Acks::OnDelivery);
            let id = fixture.in_state(here, state);
            Some(IdInState { fixture, id, here, there, group: None })
        }
        Service::Datagram => datagram(state, true),
    }
}

/// An id for datagrams in `state`. With `in_a_group` it is a member if possible, and the join is not answered.
pub(crate) fn datagram(state: State, in_a_group: bool) -> Option<IdInState> {
    let (mut fixture, here) =
        CoreFixture::on(if state == State::Destroying { Acks::Explicit } else { Acks::OnDelivery });
    let there = fixture.channel(Acks::OnDelivery);
    if state == State::SidrReqReceived {
        let id = fixture.in_state(here, State::SidrReqReceived);
        return Some(IdInState { fixture, id, here, there, group: None });
    }
    let id = fixture.id_for(PortSpace::Udp, Some(here));
    if state == State::Idle {
        return Some(IdInState { fixture, id, here, there, group: None });
    }
    fixture.does(id, BIND);
    if in_a_group {
        fixture.does(id, Request::Join { addr: group_addr(GROUP), send_only: false });
    }
    let group = fixture.core.group_at(id, group_addr(GROUP));
    let mut id_in_state = IdInState { fixture, id, here, there, group };
    let report_and_take = |id_in_state: &mut IdInState, kind| {
        id_in_state.fixture.report_on(id_in_state.here, raw(id_in_state.id, kind, 0));
        id_in_state.fixture.sees(id_in_state.here, id_in_state.id, cm(kind));
    };
    let resolving = |id_in_state: &mut IdInState| id_in_state.fixture.does(id_in_state.id, RESOLVE);
    let resolved = |id_in_state: &mut IdInState| {
        resolving(id_in_state);
        report_and_take(id_in_state, CmEvent::AddrResolved);
    };
    let routing = |id_in_state: &mut IdInState| {
        resolved(id_in_state);
        id_in_state.fixture.does(id_in_state.id, Request::ResolveRoute);
    };
    let routed = |id_in_state: &mut IdInState| {
        routing(id_in_state);
        report_and_take(id_in_state, CmEvent::RouteResolved);
    };
    let asking = |id_in_state: &mut IdInState| {
        routed(id_in_state);
        id_in_state.fixture.does(id_in_state.id, connect());
    };
    match state {
        State::Bound => {}
        State::AddrResolving => resolving(&mut id_in_state),
        State::AddrResolved => resolved(&mut id_in_state),
        State::RouteResolving => routing(&mut id_in_state),
        State::RouteResolved => routed(&mut id_in_state),
        State::SidrReqSent => asking(&mut id_in_state),
        State::SidrResolved => {
            asking(&mut id_in_state);
            report_and_take(&mut id_in_state, CmEvent::Established);
        }
        State::Failed => {
            asking(&mut id_in_state);
            report_and_take(&mut id_in_state, CmEvent::Unreachable);
        }
        State::Listening => id_in_state.fixture.does(id, LISTEN),
        State::Removed => report_and_take(&mut id_in_state, CmEvent::DeviceRemoval),
        State::Destroying => destroys_when_acked(&mut id_in_state),
        _ => return None,
    }
    assert_eq!(id_in_state.fixture.state(id), state);
    Some(id_in_state)
}

/// An id with a QP, to be destroyed as soon as its event is acked.
pub(crate) fn destroying_with_qp() -> IdInState {
    let (mut fixture, here) = CoreFixture::on(Acks::Explicit);
    let there = fixture.channel(Acks::OnDelivery);
    let id = fixture.in_state(here, State::Bound);
    fixture.does(id, Request::AttachQp);
    let mut id_in_state = IdInState { fixture, id, here, there, group: None };
    destroys_when_acked(&mut id_in_state);
    id_in_state
}

/// Begins the destruction of an id that owes an ack.
fn destroys_when_acked(id_in_state: &mut IdInState) {
    let IdInState { fixture, id, here, .. } = id_in_state;
    fixture.report(*id, CmEvent::AddrChange);
    assert!(fixture.expect_event(*here, *id, cm(CmEvent::AddrChange)).ack_token.is_some());
    fixture.submit(*id, Request::Destroy).unwrap();
    fixture.no_call();
}

/// An id in `state` with a QP; `None` if it cannot have one there.
pub(crate) fn with_qp(state: State) -> Option<IdInState> {
    let (mut fixture, here, there) = CoreFixture::on_two(Acks::OnDelivery);
    let from = match state {
        State::Idle | State::Destroying => return None,
        State::Requested | State::Accepting => State::Requested,
        State::SidrReqReceived | State::SidrResolved => State::SidrReqReceived,
        State::SidrReqSent => State::SidrReqSent,
        _ => State::Bound,
    };
    let id = fixture.in_state(here, from);
    fixture.does(id, Request::AttachQp);
    let mut id_in_state = IdInState { fixture, id, here, there, group: None };
    id_in_state.leads_to(state);
    Some(id_in_state)
}

/// The steps of a connection from *bound* on.
const WAY: [(State, Result<Request<'static>, CmEvent>); 9] = [
    (State::AddrResolving, Ok(RESOLVE)),
    (State::AddrResolved, Err(CmEvent::AddrResolved)),
    (State::RouteResolving, Ok(Request::ResolveRoute)),
    (State::RouteResolved, Err(CmEvent::RouteResolved)),
    // A placeholder: `walks_to` makes a connect, which is no constant.
    (State::Connecting, Ok(Request::Establish)),
    (State::Connected, Err(CmEvent::Established)),
    (State::PeerClosed, Err(CmEvent::Disconnected)),
    (State::TimeWait, Ok(Request::Disconnect)),
    (State::Closed, Err(CmEvent::TimewaitExit)),
];

impl IdInState {
    fn report_and_take(&mut self, kind: CmEvent) {
        self.fixture.report_on(self.here, raw(self.id, kind, 0));
        self.fixture.sees(self.here, self.id, cm(kind));
    }

    /// Leads the id to `state` from *bound*, or from the state of a lookup or a request.
    fn leads_to(&mut self, state: State) {
        let fixture = &mut self.fixture;
        match state {
            State::Listening => fixture.does(self.id, LISTEN),
            State::Removed => self.report_and_take(CmEvent::DeviceRemoval),
            State::Accepting | State::SidrResolved => fixture.does(self.id, accept()),
            State::Failed => self.after(State::Connecting, CmEvent::Rejected),
            State::Responded => self.after(State::Connecting, CmEvent::ConnectResponse),
            State::Disconnecting => {
                self.leads_to(State::Connected);
                self.fixture.does(self.id, Request::Disconnect);
            }
            State::Closing => {
                self.leads_to(State::Connected);
                self.fixture.does(self.id, Request::Teardown);
            }
            State::Idle | State::Bound | State::Requested | State::SidrReqReceived | State::SidrReqSent => {}
            _ => self.walks_to(state),
        }
        assert_eq!(self.fixture.state(self.id), state);
    }

    fn after(&mut self, state: State, kind: CmEvent) {
        self.walks_to(state);
        self.report_and_take(kind);
    }

    fn walks_to(&mut self, state: State) {
        for (next, step) in WAY {
            match step {
                Ok(_) if next == State::Connecting => self.fixture.does(self.id, connect()),
                Ok(request) => self.fixture.does(self.id, request),
                Err(kind) => self.report_and_take(kind),
            }
            if next == state {
                return;
            }
        }
    }

    /// An event of the id, on the channel that it is reported on.
    pub(crate) fn raw(&self, kind: CmEvent) -> (ChannelKey, RawEvent<&'static [u8]>) {
        let of_group = matches!(kind, CmEvent::MulticastJoin | CmEvent::MulticastError);
        let event = RawEvent { group: self.group.filter(|_| of_group), ..raw(self.id, kind, 0) };
        (self.fixture.core.device_channel(self.id).unwrap(), event)
    }
}
