//! Ids in every state, of either service.

use cmid_proto::{Acks, ChannelKey, CmEvent, GroupKey, IdKey, PortSpace, RawEvent, Request, Service, State};

use crate::fixture::{BIND, LISTEN, RESOLVE, Stage, accept, addr, cm, connect, raw};

/// An id in a state, and two channels: it is on the first.
pub(crate) struct Place {
    pub(crate) stage: Stage,
    pub(crate) id: IdKey,
    pub(crate) here: ChannelKey,
    pub(crate) there: ChannelKey,
    pub(crate) group: Option<GroupKey>,
}

pub(crate) const SERVICES: [Service; 2] = [Service::Connected, Service::Datagram];

/// The group that ids for datagrams are members of.
pub(crate) const GROUP: u8 = 77;

/// `None` where no id of the service gets.
pub(crate) fn place(state: State, service: Service) -> Option<Place> {
    match service {
        Service::Connected if matches!(state, State::Asking | State::Asked | State::Answered) => None,
        Service::Connected => {
            let (mut stage, here) = Stage::on(Acks::OnDelivery);
            let there = stage.channel(Acks::OnDelivery);
            let id = stage.in_state(here, state);
            Some(Place { stage, id, here, there, group: None })
        }
        Service::Datagram => datagram(state, true),
    }
}

/// For datagrams, `in_a_group` wherever it can be: the join is not answered.
pub(crate) fn datagram(state: State, in_a_group: bool) -> Option<Place> {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    if state == State::Asked {
        let id = stage.in_state(here, State::Asked);
        return Some(Place { stage, id, here, there, group: None });
    }
    let id = stage.id_for(PortSpace::Udp, Some(here));
    if state == State::Idle {
        return Some(Place { stage, id, here, there, group: None });
    }
    stage.does(id, BIND);
    if in_a_group {
        stage.does(id, Request::Join { addr: addr(GROUP), send_only: false });
    }
    let group = stage.core.group_at(id, addr(GROUP));
    let mut place = Place { stage, id, here, there, group };
    let told = |place: &mut Place, kind| {
        place.stage.says_on(place.here, raw(place.id, kind, 0));
        place.stage.sees(place.here, place.id, cm(kind));
    };
    let resolving = |place: &mut Place| place.stage.does(place.id, RESOLVE);
    let resolved = |place: &mut Place| {
        resolving(place);
        told(place, CmEvent::AddrResolved);
    };
    let routing = |place: &mut Place| {
        resolved(place);
        place.stage.does(place.id, Request::ResolveRoute);
    };
    let routed = |place: &mut Place| {
        routing(place);
        told(place, CmEvent::RouteResolved);
    };
    let asking = |place: &mut Place| {
        routed(place);
        place.stage.does(place.id, connect());
    };
    match state {
        State::Bound => {}
        State::AddrResolving => resolving(&mut place),
        State::AddrResolved => resolved(&mut place),
        State::RouteResolving => routing(&mut place),
        State::RouteResolved => routed(&mut place),
        State::Asking => asking(&mut place),
        State::Answered => {
            asking(&mut place);
            told(&mut place, CmEvent::Established);
        }
        State::Failed => {
            asking(&mut place);
            told(&mut place, CmEvent::Unreachable);
        }
        State::Listening => place.stage.does(id, LISTEN),
        State::Removed => told(&mut place, CmEvent::DeviceRemoval),
        State::Destroying => place.stage.asks(id, Request::Destroy).unwrap(),
        _ => return None,
    }
    assert_eq!(place.stage.state(id), state);
    Some(place)
}

/// To be destroyed as soon as an event is acked, with a QP.
pub(crate) fn destroying_with_qp() -> Place {
    let (mut stage, here) = Stage::on(Acks::Explicit);
    let there = stage.channel(Acks::OnDelivery);
    let id = stage.in_state(here, State::Bound);
    stage.does(id, Request::AttachQp);
    stage.says(id, CmEvent::AddrChange);
    assert!(stage.expect_event(here, id, cm(CmEvent::AddrChange)).receipt.is_some());
    stage.asks(id, Request::Destroy).unwrap();
    stage.no_call();
    Place { stage, id, here, there, group: None }
}

/// An id in a state, with a QP; `None` where it cannot have one.
pub(crate) fn with_qp(state: State) -> Option<Place> {
    let (mut stage, here) = Stage::on(Acks::OnDelivery);
    let there = stage.channel(Acks::OnDelivery);
    let from = match state {
        State::Idle => return None,
        State::Requested | State::Accepting => State::Requested,
        State::Asked | State::Answered => State::Asked,
        State::Asking => State::Asking,
        _ => State::Bound,
    };
    let id = stage.in_state(here, from);
    stage.does(id, Request::AttachQp);
    let mut place = Place { stage, id, here, there, group: None };
    place.leads_to(state);
    Some(place)
}

/// The way of a connection from *bound* on.
const WAY: [(State, Result<Request<'static>, CmEvent>); 9] = [
    (State::AddrResolving, Ok(RESOLVE)),
    (State::AddrResolved, Err(CmEvent::AddrResolved)),
    (State::RouteResolving, Ok(Request::ResolveRoute)),
    (State::RouteResolved, Err(CmEvent::RouteResolved)),
    // The request for it borrows.
    (State::Connecting, Ok(Request::Establish)),
    (State::Connected, Err(CmEvent::Established)),
    (State::PeerClosed, Err(CmEvent::Disconnected)),
    (State::TimeWait, Ok(Request::Disconnect)),
    (State::Closed, Err(CmEvent::TimewaitExit)),
];

impl Place {
    fn told(&mut self, kind: CmEvent) {
        self.stage.says_on(self.here, raw(self.id, kind, 0));
        self.stage.sees(self.here, self.id, cm(kind));
    }

    /// From *bound*, or from where a lookup or a request is.
    fn leads_to(&mut self, state: State) {
        let stage = &mut self.stage;
        match state {
            State::Listening => stage.does(self.id, LISTEN),
            State::Removed => self.told(CmEvent::DeviceRemoval),
            State::Destroying => stage.asks(self.id, Request::Destroy).unwrap(),
            State::Accepting | State::Answered => stage.does(self.id, accept()),
            State::Failed => self.after(State::Connecting, CmEvent::Rejected),
            State::Responded => self.after(State::Connecting, CmEvent::ConnectResponse),
            State::Disconnecting => {
                self.leads_to(State::Connected);
                self.stage.does(self.id, Request::Disconnect);
            }
            State::Closing => {
                self.leads_to(State::Connected);
                self.stage.does(self.id, Request::Teardown);
            }
            State::Idle | State::Bound | State::Requested | State::Asked | State::Asking => {}
            _ => self.walks_to(state),
        }
        assert_eq!(self.stage.state(self.id), state);
    }

    fn after(&mut self, state: State, kind: CmEvent) {
        self.walks_to(state);
        self.told(kind);
    }

    fn walks_to(&mut self, state: State) {
        for (next, step) in WAY {
            match step {
                Ok(_) if next == State::Connecting => self.stage.does(self.id, connect()),
                Ok(request) => self.stage.does(self.id, request),
                Err(kind) => self.told(kind),
            }
            if next == state {
                return;
            }
        }
    }

    /// An event of the id, on the channel that it is reported on.
    pub(crate) fn raw(&self, kind: CmEvent) -> (ChannelKey, RawEvent<'static>) {
        let of_group = matches!(kind, CmEvent::MulticastJoin | CmEvent::MulticastError);
        let event = RawEvent { group: self.group.filter(|_| of_group), ..raw(self.id, kind, 0) };
        (self.stage.core.line(self.id).unwrap(), event)
    }
}
