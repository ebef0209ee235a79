//! The code that all roles share: a driver with a channel, the next event, and a short wait.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use cmid_proto::datapath::DataPath as _;
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Datagram, Event, EventKind, IdKey, PortSpace, Time};

use crate::driver::{DriveOf, Driver};
use crate::port::{Port, SLOTS};

/// The time limit of each step. Emulated machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A driver and its channel.
pub(crate) struct Peer<S> {
    driver: S,
    channel: ChannelKey,
}

impl<S: Driver> Peer<S> {
    pub(crate) fn new(mut driver: S) -> Result<Self> {
        let channel = driver.drive().open_channel(Acks::OnDelivery)?;
        Ok(Peer { driver, channel })
    }

    pub(crate) fn drive(&mut self) -> &mut DriveOf<S> {
        self.driver.drive()
    }

    /// Creates a datagram id.
    pub(crate) fn id(&mut self) -> Result<IdKey> {
        let channel = self.channel;
        Ok(self.drive().create_id(Some(channel), PortSpace::Udp)?)
    }

    /// Lets the driver run for at most a millisecond.
    pub(crate) fn rest(&mut self) -> Result<()> {
        self.driver.wait(Duration::from_millis(1))
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let channel = self.channel;
        self.drive().next_event(channel)
    }

    /// Waits for the next event of the channel, which must be of this id and kind.
    pub(crate) fn expect(&mut self, id: IdKey, kind: CmEvent) -> Result<Event> {
        let began = Instant::now();
        loop {
            if let Some(event) = self.next_event() {
                ensure!(
                    event.id == id && event.kind == EventKind::Cm(kind) && event.status == 0,
                    "{} of {} with status {} where {kind} was awaited",
                    event.kind,
                    event.id,
                    event.status
                );
                return Ok(event);
            }
            ensure!(began.elapsed() < PATIENCE, "no {kind} within {PATIENCE:?}");
            self.rest()?;
        }
    }

    /// Creates a QP on an id, for datagrams of `size` bytes or of the most that the path permits (0), and posts all receives.
    pub(crate) fn open_port(&mut self, id: IdKey, size: usize) -> Result<Port<S::Path>> {
        let mtu = self.drive().device_mut().path_mtu(id)? as usize;
        ensure!(size <= mtu, "datagrams of {size} bytes, more than the {mtu} that the path permits");
        let size = if size == 0 { mtu } else { size };
        let mut port = self.drive().attach_qp(id, |device, attaching| Port::open(device, attaching, size))?;
        for slot in 0..SLOTS {
            port.post_recv(slot).with_context(|| format!("posting receive {slot}"))?;
        }
        Ok(port)
    }

    /// Looks up the QP of a server. Returns an id, its QP, and the path to the server's QP.
    pub(crate) fn look_up(&mut self, address: SocketAddr, size: usize) -> Result<(IdKey, Port<S::Path>, Datagram)> {
        let id = self.id()?;
        let deadline = self.drive().within(PATIENCE);
        self.drive().resolve_addr(id, None, address, deadline)?;
        let _ = self.expect(id, CmEvent::AddrResolved)?;
        self.drive().resolve_route(id, deadline)?;
        let _ = self.expect(id, CmEvent::RouteResolved)?;
        let port = self.open_port(id, size)?;
        self.drive().connect(id, ConnParam::default(), &[], deadline)?;
        let answer = self.expect(id, CmEvent::Established)?;
        Ok((id, port, answer.datagram.context("an answer without a destination")?))
    }

    /// Listens, and answers one lookup. Returns the listener, and the id of the lookup with its QP.
    pub(crate) fn answer_lookup(
        &mut self,
        address: SocketAddr,
        size: usize,
        ready: &Sender<()>,
    ) -> Result<(IdKey, IdKey, Port<S::Path>)> {
        let listener = self.id()?;
        self.drive().bind(listener, address)?;
        self.drive().listen(listener, 8)?;
        say!("serves {address}")?;
        // The receiver may be gone, which is not an error.
        let _ = ready.send(());
        let began = Instant::now();
        let id = loop {
            match self.next_event() {
                Some(event) if event.cm() == Some(CmEvent::ConnectRequest) => break event.id,
                Some(event) => bail!("{} while listening", event.kind),
                None => ensure!(began.elapsed() < PATIENCE, "no lookup of the server within {PATIENCE:?}"),
            }
            self.rest()?;
        };
        let port = self.open_port(id, size)?;
        let param = ConnParam { qp_num: port.num(), ..ConnParam::default() };
        self.drive().accept(id, param, &[], Time::NEVER)?;
        Ok((listener, id, port))
    }

    /// Destroys the QP and the id.
    pub(crate) fn close(&mut self, id: IdKey) -> Result<()> {
        let deadline = self.drive().within(PATIENCE);
        self.drive().detach_qp(id, |device, id| device.destroy_qp(id))?;
        self.drive().destroy(id, deadline)?;
        Ok(())
    }
}
