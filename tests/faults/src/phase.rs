//! The phases of a connection in which a fault is injected, and the next operation of an application in each.

use std::time::{Duration, Instant};

use cmid_harness::{Check, Env, Side};
use cmid_proto::IdKey;

use crate::fixture::{AT_ONCE, MOMENT};
use crate::{FaultFixture, Link, devices};

/// By then the kernel has retransmitted an unanswered message: after 4.6 s, on Linux 6.1 after 6.1 s. Where something
/// is retransmitted a fault lasts this long, so that it always covers the retransmission: a failed send changes the
/// device's state.
const SENT_AGAIN: Duration = Duration::from_secs(9);

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The client has an address, and the server listens.
    Bound,
    /// The client has resolved the server's address.
    AddrResolved,
    /// The client has a route, and can connect.
    RouteResolved,
    /// The client has sent its request to connect; the server has not read it.
    Unread,
    /// The server has read the request, but not answered it.
    Requested,
    /// The server has accepted; the client has not read the answer.
    Accepted,
    /// The client has read the answer, but not confirmed it.
    Responded,
    /// The connection is established.
    Connected,
    /// The client has disconnected; the server has not answered.
    Disconnecting,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Phase; 9] = [
        Phase::Bound,
        Phase::AddrResolved,
        Phase::RouteResolved,
        Phase::Unread,
        Phase::Requested,
        Phase::Accepted,
        Phase::Responded,
        Phase::Connected,
        Phase::Disconnecting,
    ];

    /// Whether the kernel of either side retransmits a message until it is answered.
    fn waits_for_an_answer(self) -> bool {
        match self {
            Phase::Unread | Phase::Requested | Phase::Accepted | Phase::Responded | Phase::Disconnecting => true,
            Phase::Bound | Phase::AddrResolved | Phase::RouteResolved | Phase::Connected => false,
        }
    }
}

/// The ids of a connection. The server's exists only in later phases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids {
    pub(crate) client: IdKey,
    /// `Some` from [`Phase::Requested`] on.
    pub(crate) server: Option<IdKey>,
}

impl<L: Env> FaultFixture<'_, L> {
    /// Brings a connection into a phase, with a listener at the server.
    pub(crate) fn reach(&mut self, phase: Phase) -> Check<Ids> {
        self.b.listen()?;
        let b = &mut self.b;
        let client = |client| Ids { client, server: None };
        let both = |(client, server)| Ids { client, server: Some(server) };
        Ok(match phase {
            Phase::Bound => client(b.bound()?),
            Phase::AddrResolved => client(b.addr_resolved()?),
            Phase::RouteResolved => client(b.resolved()?),
            Phase::Unread => {
                let id = b.resolved()?;
                b.frozen = Some(Side::Server);
                b.connect(id, &[])?;
                std::thread::sleep(AT_ONCE);
                client(id)
            }
            Phase::Requested => both(b.requested()?),
            Phase::Accepted => {
                let (client, server) = b.requested()?;
                b.frozen = Some(Side::Client);
                b.accept(server, &[])?;
                std::thread::sleep(AT_ONCE);
                both((client, server))
            }
            Phase::Responded => both(b.responded()?),
            Phase::Connected => both(b.connected()?),
            Phase::Disconnecting => both(b.disconnecting()?),
        })
    }

    /// Performs the next operation of an application, with a deadline where there can be one, and notes the result.
    pub(crate) fn go_on(&mut self, phase: Phase, ids: Ids) -> Check {
        let (mine, theirs) = (self.patience(Side::Client), self.patience(Side::Server));
        let (client, server) = (&mut self.b.client, &mut self.b.server);
        // Both sides read their events from here on.
        self.b.frozen = None;
        match (phase, ids.server) {
            (Phase::Bound, _) => {
                let there = self.b.address;
                let result = self.b.client.drive().resolve_addr(ids.client, None, there, mine);
                self.tries("client: resolve_addr", result);
            }
            (Phase::AddrResolved, _) => {
                let result = client.drive().resolve_route(ids.client, mine);
                self.tries("client: resolve_route", result);
            }
            (Phase::RouteResolved, _) => {
                let param = self.b.param();
                let result = self.b.client.drive().connect(ids.client, param, &[], mine);
                self.tries("client: connect", result);
            }
            (Phase::Unread | Phase::Requested, id) => {
                let id = match id {
                    Some(id) => Some(id),
                    // The kernel has had the request since before the fault.
                    None => self.next(Side::Server, AT_ONCE)?.map(|event| event.id),
                };
                match id {
                    None => self.note("server: no CONNECT_REQUEST"),
                    Some(id) => {
                        let param = self.b.param();
                        let result = self.b.server.drive().accept(id, param, &[], theirs);
                        self.tries("server: accept", result);
                    }
                }
            }
            // The pending event is read in what follows.
            (Phase::Accepted, _) => self.note("client: looks"),
            (Phase::Responded, _) => {
                let result = client.drive().establish(ids.client);
                self.tries("client: establish", result);
            }
            (Phase::Connected, _) => {
                let result = client.drive().disconnect(ids.client, mine);
                self.tries("client: disconnect", result);
            }
            (Phase::Disconnecting, Some(id)) => {
                let result = server.drive().disconnect(id, theirs);
                self.tries("server: disconnect", result);
            }
            (Phase::Disconnecting, None) => {}
        }
        self.aftermath()
    }

    /// Injects a fault in a phase. Notes the events at once, the result of the next operation and the events after
    /// the repair. Then makes a new connection.
    pub(crate) fn fault_in(
        &mut self,
        phase: Phase,
        fault: impl FnOnce(&mut Self, Link) -> Check,
        repair: impl FnOnce(&mut Self, Link) -> Check,
    ) -> Check {
        let (ids, link) = (self.reach(phase)?, self.link);
        let begun = Instant::now();
        fault(self, link)?;
        self.watch(AT_ONCE)?;
        self.go_on(phase, ids)?;
        if phase.waits_for_an_answer() {
            self.linger(begun + SENT_AGAIN)?;
        }
        repair(self, link)?;
        self.note("all is well again");
        self.watch(AT_ONCE)?;
        // Only a new device would help; see the scenarios about devices. Here the link is given up.
        if self.looks_at_the_devices()?.is_empty() {
            return self.anew();
        }
        self.note(devices::NONE);
        Ok(())
    }

    /// Runs both drivers until then, and notes their events.
    fn linger(&mut self, until: Instant) -> Check {
        while Instant::now() < until {
            self.b.pump(MOMENT)?;
        }
        self.notes_what_is_there();
        Ok(())
    }
}
