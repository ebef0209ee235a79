//! The side that makes the connections, as an event-driven program, common to all drivers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use cmid_proto::datapath::DataPath;
use cmid_proto::key_table::KeyTable;
use cmid_proto::{Acks, ChannelKey, CmEvent, Drive, Error, Event, IdKey, Poller, PortSpace, Time};

use crate::args::Plan;
use crate::equipment::Equipment;
use crate::failure_text::failure_text;
use crate::phase::Phase;
use crate::point::Point;
use crate::tally::Tally;

/// One connection: in its phase, or waiting for the next one.
struct Conn<D: DataPath> {
    id: Option<IdKey>,
    qp: Option<<D as DataPath>::Qp>,
    phase: Phase,
    /// When the creation of its id began.
    born: Time,
    /// When its phase began.
    begun: Time,
    /// Whether the phase has begun.
    runs: bool,
    /// Whether it waits for the other connections to reach the same phase.
    waits: bool,
    /// How often its address or route may be retried.
    retries: u8,
}

/// All connections of one event loop.
pub(crate) struct Client<D: DataPath> {
    plan: Plan,
    server: SocketAddr,
    channel: ChannelKey,
    equipment: Equipment<D>,
    conns: Vec<Conn<D>>,
    /// The place of each id.
    by_id: KeyTable<IdKey, usize>,
    /// The places of connections that are ready for their next phase.
    due: VecDeque<usize>,
    /// How many connections wait for the others.
    waiting: u64,
    /// How many are in progress.
    alive: u64,
    tally: Tally,
}

impl<D: DataPath> Client<D> {
    pub(crate) fn begin<P: Poller<D>>(drive: &mut Drive<D, P>, server: SocketAddr, plan: Plan) -> Result<Self> {
        let channel = drive.open_channel(Acks::OnDelivery)?;
        let (places, begun) = (usize::try_from(plan.connections)?, drive.within(Duration::ZERO));
        let mut client = Client {
            plan,
            server,
            channel,
            equipment: Equipment::new(&plan, 0),
            conns: (0..places).map(|_| Conn::new(begun)).collect(),
            by_id: KeyTable::default(),
            due: (0..places).collect(),
            waiting: 0,
            alive: plan.connections,
            tally: Tally::default(),
        };
        client.work(drive);
        Ok(client)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.alive == 0
    }

    /// Returns the results. Connections in progress count as unfinished.
    pub(crate) fn conclude(mut self) -> Tally {
        self.tally.unfinished = self.alive;
        self.tally
    }

    /// Handles all available events.
    pub(crate) fn advance<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) {
        // The event is large, so it is used by reference.
        while let Some(event) = &drive.next_event(self.channel) {
            self.on_event(drive, event);
        }
        self.work(drive);
    }

    /// Begins the phases that can begin: a phase once all connections are ready.
    fn work<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) {
        loop {
            while let Some(place) = self.due.pop_front() {
                self.step(drive, place);
            }
            if !self.may_go_on() || self.reached().is_some() {
                return;
            }
            self.release();
        }
    }

    /// Makes the waiting connections ready for their next phase.
    fn release(&mut self) {
        self.waiting = 0;
        for (place, conn) in self.conns.iter_mut().enumerate() {
            if std::mem::take(&mut conn.waits) {
                self.due.push_back(place);
            }
        }
    }

    /// Whether all connections in progress wait for the next phase.
    fn may_go_on(&self) -> bool {
        self.waiting > 0 && self.waiting == self.alive
    }

    /// The point at which all connections wait for the server. `None` after a failure: the server would wait for the
    /// failed connection.
    pub(crate) fn reached(&self) -> Option<Point> {
        if !self.plan.in_step || !self.may_go_on() || self.tally.failures() > 0 {
            return None;
        }
        match self.conns.iter().find(|conn| conn.waits).map(|conn| conn.phase) {
            Some(Phase::Disconnect) => Some(Point::Connected),
            Some(Phase::Destroy) => Some(Point::Disconnected),
            _ => None,
        }
    }

    /// Continues after the server has reached the point too.
    pub(crate) fn go_on<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) {
        self.release();
        self.work(drive);
    }

    /// Begins a connection's phase.
    fn step<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, place: usize) {
        let begun = drive.within(Duration::ZERO);
        let Some(conn) = self.conns.get_mut(place) else { return };
        conn.begun = begun;
        conn.runs = true;
        conn.retries = self.plan.retries;
        let phase = conn.phase;
        let result = match (phase, conn.id) {
            (Phase::CreateId, _) => {
                conn.born = begun;
                self.create(drive, place).map(|()| true)
            }
            (_, Some(id)) => self.request(drive, place, phase, id).map_err(|error| failure_text(&error)),
            // Every phase but the first has an id.
            (_, None) => Ok(true),
        };
        match result {
            Ok(true) => self.finished(drive, place),
            Ok(false) => {}
            Err(reason) => self.fail(drive, place, &reason),
        }
    }

    fn create<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, place: usize) -> Result<(), String> {
        let id = drive.create_id(Some(self.channel), PortSpace::Tcp).map_err(|error| failure_text(&error))?;
        self.conns[place].id = Some(id);
        self.by_id.reserve(id).map_err(|errno| format!("its place: {errno}"))?;
        self.by_id.insert(id, place).map_err(|_| "its place is taken".to_owned())
    }

    /// Makes the request of a phase. Returns true if the phase is over; otherwise an event ends it.
    fn request<P: Poller<D>>(
        &mut self,
        drive: &mut Drive<D, P>,
        place: usize,
        phase: Phase,
        id: IdKey,
    ) -> Result<bool, Error> {
        let source = self.plan.bind.map(|ip| SocketAddr::new(ip, 0));
        // The clock was read at the begin of the phase, or at the end of the wait before a retry.
        let [patience, timeout] = [self.plan.patience, self.plan.timeout].map(|span| drive.now().after(span));
        match phase {
            // There is an id already.
            Phase::CreateId => Ok(true),
            Phase::Bind => source.map_or(Ok(()), |source| drive.bind(id, source)).map(|()| true),
            Phase::ResolveAddr => drive.resolve_addr(id, None, self.server, timeout).map(|()| false),
            Phase::ResolveRoute => drive.resolve_route(id, timeout).map(|()| false),
            Phase::CreateQp => {
                let qp = self.equipment.attach(drive, id)?;
                self.conns[place].qp = qp;
                Ok(true)
            }
            Phase::Connect => drive.connect(id, self.equipment.param(), &[], patience).map(|()| false),
            Phase::Disconnect => {
                drive.disconnect(id, patience)?;
                // Like cmtime: without waiting for the end of the connection.
                Equipment::detach(drive, id, self.conns[place].qp.take())?;
                Ok(false)
            }
            Phase::Destroy => drive.destroy(id, patience).map(|_done| true),
        }
    }

    fn on_event<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, event: &Event) {
        let Some(&place) = self.by_id.get(event.id) else { return };
        let Conn { phase, runs, .. } = self.conns[place];
        match (phase, event.cm()) {
            // Not part of the connection's phases: a path change, or the end of the time wait.
            (_, Some(CmEvent::AddrChange | CmEvent::TimewaitExit)) => return,
            // The end of a connection without a request of this side.
            _ if !runs => {}
            (Phase::ResolveAddr, Some(CmEvent::AddrResolved))
            | (Phase::ResolveRoute, Some(CmEvent::RouteResolved))
            | (Phase::Connect, Some(CmEvent::Established))
            | (Phase::Disconnect, Some(CmEvent::Disconnected)) => return self.finished(drive, place),
            (Phase::Connect, Some(CmEvent::ConnectResponse)) => match drive.establish(event.id) {
                Ok(()) => return self.finished(drive, place),
                Err(error) => return self.fail(drive, place, &failure_text(&error)),
            },
            (Phase::ResolveAddr, Some(CmEvent::AddrError)) | (Phase::ResolveRoute, Some(CmEvent::RouteError))
                if self.conns[place].retries > 0 =>
            {
                self.conns[place].retries -= 1;
                return match self.request(drive, place, phase, event.id) {
                    // An event ends it.
                    Ok(_) => {}
                    Err(error) => self.fail(drive, place, &failure_text(&error)),
                };
            }
            _ => {}
        }
        let status = if event.status == 0 { String::new() } else { format!(" with status {}", event.status) };
        self.fail(drive, place, &format!("{}{status}", event.kind));
    }

    /// Ends a connection's phase.
    fn finished<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, place: usize) {
        let end = drive.within(Duration::ZERO);
        let conn = &mut self.conns[place];
        conn.runs = false;
        let Conn { phase, born, begun, .. } = *conn;
        let next = phase.next();
        if let Some(next) = next {
            conn.phase = next;
            conn.waits = true;
            self.waiting += 1;
        }
        // Without an address to bind to there is no such phase, as in cmtime.
        if phase != Phase::Bind || self.plan.bind.is_some() {
            self.tally.phases[phase as usize].note(begun, end);
        }
        if phase == Phase::Connect {
            self.tally.connected.note(born, end);
        }
        if next.is_none() {
            self.tally.whole.note(born, end);
            self.leave(place);
        }
    }

    /// Counts a connection as failed, and destroys its id in any state.
    fn fail<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, place: usize, reason: &str) {
        let conn = &mut self.conns[place];
        self.tally.fail(format!("{}: {reason}", conn.phase.name()));
        if std::mem::take(&mut conn.waits) {
            self.waiting -= 1;
        }
        let (id, qp) = (conn.id, conn.qp.take());
        if let Some(id) = id {
            // If the detach fails, the destruction of the id detaches the QP. An id that cannot be destroyed stays
            // until the device is closed.
            let _ = Equipment::detach(drive, id, qp);
            let _ = drive.destroy(id, drive.within(self.plan.patience));
        }
        self.leave(place);
    }

    /// Ends a connection.
    fn leave(&mut self, place: usize) {
        self.alive -= 1;
        if let Some(id) = self.conns[place].id.take() {
            self.by_id.remove(id);
        }
    }
}

impl<D: DataPath> Conn<D> {
    fn new(now: Time) -> Self {
        let (phase, runs, waits) = (Phase::CreateId, false, false);
        Conn { id: None, qp: None, phase, born: now, begun: now, runs, waits, retries: 0 }
    }
}
