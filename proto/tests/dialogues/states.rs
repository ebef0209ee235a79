//! Ids in each state, and the end of a dialogue.

use cmid_proto::{
    Acks, Admission, ChannelKey, CmEvent, Event, GroupKey, IdKey, PortSpace, Request, Service, State, Time,
};

use crate::fixture::{BIND, CoreFixture, LISTEN, RESOLVE, accept, cm, connect, group_addr, of};

impl CoreFixture {
    /// A core with one channel, and an id in `state` on it.
    pub(crate) fn with_id(acks: Acks, state: State) -> (Self, ChannelKey, IdKey) {
        let (mut fixture, channel) = Self::on(acks);
        let id = fixture.in_state(channel, state);
        (fixture, channel, id)
    }

    /// A core with two channels, and an id in `state` on the first.
    pub(crate) fn with_id_on_two(acks: Acks, state: State) -> (Self, [ChannelKey; 2], IdKey) {
        let (mut fixture, here, there) = Self::on_two(acks);
        let id = fixture.in_state(here, state);
        (fixture, [here, there], id)
    }

    /// A listener and the id of a request that was taken.
    pub(crate) fn requested(&mut self, on: ChannelKey) -> (IdKey, IdKey) {
        self.requested_for(PortSpace::Tcp, on)
    }

    pub(crate) fn requested_for(&mut self, space: PortSpace, on: ChannelKey) -> (IdKey, IdKey) {
        let listener = self.id_for(space, Some(on));
        self.does(listener, LISTEN);
        let child = self.report_request(listener);
        self.sees(on, child, cm(CmEvent::ConnectRequest));
        (listener, child)
    }

    /// An id for datagrams with a join under way.
    pub(crate) fn joining(&mut self, on: ChannelKey) -> (IdKey, GroupKey) {
        let id = self.id_for(PortSpace::Udp, Some(on));
        self.does(id, BIND);
        let group = self.joins(id, group_addr(9), false, Time::NEVER).unwrap();
        self.all_well();
        (id, group)
    }

    /// An id for datagrams that is a member of a group and owes the ack of its join.
    pub(crate) fn member_that_owes(&mut self, on: ChannelKey) -> (IdKey, GroupKey, Event) {
        let (id, group) = self.joining(on);
        self.report_on(on, of(group, id, CmEvent::MulticastJoin, 0));
        (id, group, self.expect_event(on, id, cm(CmEvent::MulticastJoin)))
    }

    /// A new id in `state`, with no undelivered event and no ack owed.
    pub(crate) fn in_state(&mut self, on: ChannelKey, state: State) -> IdKey {
        let id = match state {
            State::Requested | State::Accepting => self.requested(on).1,
            State::SidrReqReceived | State::SidrResolved => self.requested_for(PortSpace::Udp, on).1,
            State::SidrReqSent => self.id_for(PortSpace::Udp, Some(on)),
            _ => self.id(Some(on)),
        };
        if state == State::Destroying {
            // On iWARP it has waited for the answer to a connect. The answer has come, and the call is due.
            self.lead(id, State::Connecting);
            self.core.note_iwarp(id);
            self.submit(id, Request::Destroy).unwrap();
            assert_eq!(self.report(id, CmEvent::Unreachable), Admission::Late);
        } else {
            self.lead(id, state);
        }
        assert_eq!(self.state(id), state);
        id
    }

    /// Leads an id to `state`, from where it is on the way.
    pub(crate) fn lead(&mut self, id: IdKey, state: State) {
        let now = self.state(id);
        if now == state {
            return;
        }
        let is_lookup = self.core.id_info(id).is_some_and(|it| it.port_space.service() == Service::Datagram);
        let (from, step) = match state {
            State::Bound => (State::Idle, Ok(BIND)),
            State::Listening => (State::Idle, Ok(LISTEN)),
            State::Removed => (State::Bound, Err(CmEvent::DeviceRemoval)),
            State::AddrResolving => (State::Idle, Ok(RESOLVE)),
            State::AddrResolved => (State::AddrResolving, Err(CmEvent::AddrResolved)),
            State::RouteResolving => (State::AddrResolved, Ok(Request::ResolveRoute)),
            State::RouteResolved => (State::RouteResolving, Err(CmEvent::RouteResolved)),
            State::Connecting | State::SidrReqSent => (State::RouteResolved, Ok(connect())),
            State::SidrResolved if now == State::SidrReqReceived => (now, Ok(accept())),
            State::SidrResolved => (State::SidrReqSent, Err(CmEvent::Established)),
            State::Accepting => (State::Requested, Ok(accept())),
            State::Responded => (State::Connecting, Err(CmEvent::ConnectResponse)),
            State::Connected => (State::Connecting, Err(CmEvent::Established)),
            State::Disconnecting => (State::Connected, Ok(Request::Disconnect)),
            State::Closing => (State::Connected, Ok(Request::Teardown)),
            State::PeerClosed => (State::Connected, Err(CmEvent::Disconnected)),
            State::TimeWait => (State::PeerClosed, Ok(Request::Disconnect)),
            State::Closed => (State::TimeWait, Err(CmEvent::TimewaitExit)),
            State::Failed if is_lookup => (State::SidrReqSent, Err(CmEvent::Unreachable)),
            State::Failed => (State::Connecting, Err(CmEvent::Rejected)),
            State::Idle | State::Requested | State::SidrReqReceived | State::Destroying => {
                panic!("no step leads from {now} to {state}")
            }
        };
        // An id that is bound resolves and listens, too.
        if now != State::Bound || from != State::Idle {
            self.lead(id, from);
        }
        match step {
            Ok(request) => self.does(id, request),
            Err(kind) => self.report_and_take(id, kind),
        }
    }

    /// Destroys every id, closes every channel, and asserts that nothing is left.
    fn ends(&mut self) {
        let ids: Vec<_> = self.core.ids().collect();
        // The id of a request comes before its listener.
        for id in ids.into_iter().rev() {
            if self.core.state(id).is_some_and(|state| state != State::Destroying) {
                self.does(id, Request::Destroy);
            }
        }
        self.all_well();
        let channels: Vec<_> = self.core.channels().collect();
        for channel in channels {
            while let Some(event) = self.core.poll_event(channel) {
                assert_eq!(event.ack_token, None, "{event:?} is not acked");
            }
            self.closes(channel).unwrap();
            self.all_well();
        }
        while self.core.poll_readable().is_some() {}
        self.core.check();
        assert_eq!((self.core.ids().count(), self.core.channels().count()), (0, 0));
        assert_eq!((self.core.poll_timeout(), self.core.has_work()), (None, false));
        assert_eq!(self.core.summary().counters.faults, 0);
    }

    /// The dialogue may stop anywhere: it owes acks or an outcome, or is about a fault.
    pub(crate) fn stops(&mut self) {
        self.stops = true;
    }
}

/// A dialogue ends well.
impl Drop for CoreFixture {
    fn drop(&mut self) {
        if !self.stops && !std::thread::panicking() {
            self.ends();
        }
    }
}
