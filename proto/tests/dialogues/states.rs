//! Ids in each state, and the end of a dialogue.

use cmid_proto::{Admission, ChannelKey, CmEvent, IdKey, PortSpace, Request, State};

use crate::fixture::{BIND, CoreFixture, LISTEN, RESOLVE, accept, cm, connect};

impl CoreFixture {
    /// A listener and the id of a request that was taken.
    pub(crate) fn requested(&mut self, on: ChannelKey) -> (IdKey, IdKey) {
        let listener = self.id(Some(on));
        self.does(listener, LISTEN);
        let child = self.report_request(listener);
        self.sees(on, child, cm(CmEvent::ConnectRequest));
        (listener, child)
    }

    /// A new id in `state`, with no undelivered event and no ack owed.
    pub(crate) fn in_state(&mut self, on: ChannelKey, state: State) -> IdKey {
        let lead = |fixture: &mut Self, from: State| fixture.in_state(on, from);
        let after = |fixture: &mut Self, from: State, request: Request<'static>| {
            let id = lead(fixture, from);
            fixture.does(id, request);
            id
        };
        let reported = |fixture: &mut Self, from: State, kind: CmEvent| {
            let id = lead(fixture, from);
            fixture.report_and_take(id, kind);
            id
        };
        let id = match state {
            State::Idle => self.id(Some(on)),
            State::Bound => after(self, State::Idle, BIND),
            State::AddrResolving => after(self, State::Idle, RESOLVE),
            State::AddrResolved => reported(self, State::AddrResolving, CmEvent::AddrResolved),
            State::RouteResolving => after(self, State::AddrResolved, Request::ResolveRoute),
            State::RouteResolved => reported(self, State::RouteResolving, CmEvent::RouteResolved),
            State::Connecting => after(self, State::RouteResolved, connect()),
            State::Responded => reported(self, State::Connecting, CmEvent::ConnectResponse),
            State::Requested => self.requested(on).1,
            State::Accepting => after(self, State::Requested, accept()),
            State::Connected => after(self, State::Responded, Request::Establish),
            State::Disconnecting => after(self, State::Connected, Request::Disconnect),
            State::Closing => after(self, State::Connected, Request::Teardown),
            State::PeerClosed => reported(self, State::Connected, CmEvent::Disconnected),
            State::TimeWait => after(self, State::PeerClosed, Request::Disconnect),
            State::Closed => reported(self, State::TimeWait, CmEvent::TimewaitExit),
            State::SidrReqSent => {
                let id = self.id_for(PortSpace::Udp, Some(on));
                self.does(id, RESOLVE);
                self.report_and_take(id, CmEvent::AddrResolved);
                self.does(id, Request::ResolveRoute);
                self.report_and_take(id, CmEvent::RouteResolved);
                self.does(id, connect());
                id
            }
            State::SidrReqReceived => {
                let listener = self.id_for(PortSpace::Udp, Some(on));
                self.does(listener, LISTEN);
                let child = self.report_request(listener);
                self.sees(on, child, cm(CmEvent::ConnectRequest));
                child
            }
            State::SidrResolved => after(self, State::SidrReqReceived, accept()),
            State::Failed => reported(self, State::Connecting, CmEvent::Rejected),
            State::Listening => after(self, State::Idle, LISTEN),
            State::Removed => reported(self, State::Bound, CmEvent::DeviceRemoval),
            State::Destroying => {
                // On iWARP it has waited for the answer to a connect. The answer has come, and the call is due.
                let id = lead(self, State::Connecting);
                self.core.note_iwarp(id);
                self.submit(id, Request::Destroy).unwrap();
                assert_eq!(self.report(id, CmEvent::Unreachable), Admission::Late);
                id
            }
        };
        assert_eq!(self.state(id), state);
        id
    }

    /// Destroys every id, closes every channel, and asserts that nothing is left.
    pub(crate) fn ends(mut self, ids: &[IdKey], channels: &[ChannelKey]) {
        for &id in ids {
            if self.core.state(id).is_some_and(|state| state != State::Destroying) {
                self.does(id, Request::Destroy);
            }
        }
        self.all_well();
        for &channel in channels {
            while let Some(event) = self.core.poll_event(channel) {
                assert_eq!(event.ack_token, None, "{event:?} is not acked");
            }
            self.closes(channel).unwrap();
            self.all_well();
        }
        self.all_well();
        while self.core.poll_readable().is_some() {}
        self.core.check();
        assert_eq!((self.core.ids().count(), self.core.channels().count()), (0, 0));
        assert_eq!((self.core.poll_timeout(), self.core.has_work()), (None, false));
        assert_eq!(self.core.summary().counters.faults, 0);
    }
}
