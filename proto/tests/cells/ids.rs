//! Ids in every state, of either service.

use cmid_proto::{Acks, ChannelKey, CmEvent, GroupKey, IdKey, PortSpace, RawEvent, Request, Service, State};

use crate::fixture::{BIND, CoreFixture, cm, group_addr, raw};

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
            Some(IdInState::new(fixture, id, [here, there], None))
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
        return Some(IdInState::new(fixture, id, [here, there], None));
    }
    let id = fixture.id_for(PortSpace::Udp, Some(here));
    if state == State::Idle {
        return Some(IdInState::new(fixture, id, [here, there], None));
    }
    fixture.does(id, BIND);
    if in_a_group {
        fixture.does(id, Request::Join { addr: group_addr(GROUP), send_only: false });
    }
    let group = fixture.core.group_at(id, group_addr(GROUP));
    let mut id_in_state = IdInState::new(fixture, id, [here, there], group);
    match state {
        State::Destroying => destroys_when_acked(&mut id_in_state),
        State::Bound
        | State::AddrResolving
        | State::AddrResolved
        | State::RouteResolving
        | State::RouteResolved
        | State::SidrReqSent
        | State::SidrResolved
        | State::Failed
        | State::Listening
        | State::Removed => id_in_state.fixture.lead(id, state),
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
    let mut id_in_state = IdInState::new(fixture, id, [here, there], None);
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
    fixture.lead(id, state);
    Some(IdInState::new(fixture, id, [here, there], None))
}

impl IdInState {
    pub(crate) fn new(
        mut fixture: CoreFixture,
        id: IdKey,
        [here, there]: [ChannelKey; 2],
        group: Option<GroupKey>,
    ) -> Self {
        // A cell is met anywhere.
        fixture.stops();
        IdInState { fixture, id, here, there, group }
    }

    /// An event of the id, on the channel that it is reported on.
    pub(crate) fn raw(&self, kind: CmEvent) -> (ChannelKey, RawEvent<&'static [u8]>) {
        let of_group = matches!(kind, CmEvent::MulticastJoin | CmEvent::MulticastError);
        let event = RawEvent { group: self.group.filter(|_| of_group), ..raw(self.id, kind, 0) };
        (self.fixture.core.device_channel(self.id).unwrap(), event)
    }
}
