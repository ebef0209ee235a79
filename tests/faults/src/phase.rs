//! The phases of a connection in which something may go wrong, and what an application does next in each.

use std::time::{Duration, Instant};

use cmid_conformance::{Check, Env, Side};
use cmid_proto::{CmEvent, IdKey, PortSpace, Time};

use crate::fixture::{AT_ONCE, MOMENT};
use crate::{FaultFixture, Link, devices};

/// By then the kernel has sent again what was not answered: after 4.6 s, on Linux 6.1 after 6.1 s. A fault lasts so long where
/// something is to be sent again, so that it always falls into it: what fails to be sent leaves its mark on the device.
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
    /// The client has asked to connect; the server has not read the request.
    Unread,
    /// The server has read the request, and not answered.
    Requested,
    /// The server has accepted; the client has not read the answer.
    Accepted,
    /// The client has read the answer, and not confirmed it.
    Responded,
    /// The connection stands.
    Connected,
    /// The client has disconnected, and the server has not answered.
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

    /// Whether the kernel of either side will send a message again, as long as it has no answer.
    fn waits_for_an_answer(self) -> bool {
        match self {
            Phase::Unread | Phase::Requested | Phase::Accepted | Phase::Responded | Phase::Disconnecting => true,
            Phase::Bound | Phase::AddrResolved | Phase::RouteResolved | Phase::Connected => false,
        }
    }
}

/// The ids of a connection, as far as they are there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids {
    pub(crate) client: IdKey,
    /// There from [`Phase::Requested`] on.
    pub(crate) server: Option<IdKey>,
}

impl<L: Env> FaultFixture<'_, L> {
    /// Brings a connection into a phase, with a listener at the server.
    pub(crate) fn reach(&mut self, phase: Phase) -> Check<Ids> {
        self.b.listen()?;
        let b = &mut self.b;
        let client = |client| Ids { client, server: None };
        Ok(match phase {
            Phase::Bound => {
                let (ip, channel) = (self.link.ip(Side::Client), b.client.channel);
                let id = b.client.drive().create_id(Some(channel), PortSpace::Tcp)?;
                b.client.drive().bind(id, (ip, 0).into())?;
                client(id)
            }
            Phase::AddrResolved => client(b.addr_resolved()?),
            Phase::RouteResolved => client(b.resolved()?),
            Phase::Unread => {
                let id = b.resolved()?;
                b.frozen = Some(Side::Server);
                b.connect(id, &[])?;
                std::thread::sleep(AT_ONCE);
                client(id)
            }
            Phase::Requested => {
                let (client, server) = b.requested()?;
                Ids { client, server: Some(server) }
            }
            Phase::Accepted => {
                let (client, server) = b.requested()?;
                b.frozen = Some(Side::Client);
                b.accept(server, &[])?;
                std::thread::sleep(AT_ONCE);
                Ids { client, server: Some(server) }
            }
            Phase::Responded => {
                let (client, server) = b.requested()?;
                b.accept(server, &[])?;
                let channel = b.client.channel;
                let _ = b.next(Side::Client, channel, &CmEvent::ConnectResponse)?;
                Ids { client, server: Some(server) }
            }
            Phase::Connected => {
                let (client, server) = b.connected()?;
                Ids { client, server: Some(server) }
            }
            Phase::Disconnecting => {
                let (client, server) = b.connected()?;
                b.client.drive().disconnect(client, Time::NEVER)?;
                let channel = b.server.channel;
                let _ = b.next(Side::Server, channel, &CmEvent::Disconnected)?;
                Ids { client, server: Some(server) }
            }
        })
    }

    /// What an application does next, with a deadline where there can be one, and what comes of it.
    pub(crate) fn go_on(&mut self, phase: Phase, ids: Ids) -> Check {
        let (mine, theirs) = (self.patience(Side::Client), self.patience(Side::Server));
        let (client, server) = (&mut self.b.client, &mut self.b.server);
        // Whoever has not looked looks now.
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
                    // The kernel has it since before anything went wrong.
                    None => self.next(Side::Server, AT_ONCE)?.map(|event| event.id),
                };
                match id {
                    None => self.tell("server: no CONNECT_REQUEST"),
                    Some(id) => {
                        let param = self.b.param();
                        let result = self.b.server.drive().accept(id, param, &[], theirs);
                        self.tries("server: accept", result);
                    }
                }
            }
            // What there is to read is read in what follows.
            (Phase::Accepted, _) => self.tell("client: looks"),
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

    /// A fault in a phase: what is told at once, what the next step comes to, what is told when all is well again, and that
    /// a new connection then stands.
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
        self.tell("all is well again");
        self.watch(AT_ONCE)?;
        // A new device would help; see the scenarios about devices. Here the wire is given up.
        if self.looks_at_the_devices()?.is_empty() {
            return self.anew();
        }
        self.tell(devices::NONE);
        Ok(())
    }

    /// Both drivers run on until then; notes what they are told.
    fn linger(&mut self, until: Instant) -> Check {
        while Instant::now() < until {
            self.b.pump(MOMENT)?;
        }
        self.notes_what_is_there();
        Ok(())
    }
}
