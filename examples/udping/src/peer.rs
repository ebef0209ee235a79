//! What all roles need: a driver with a channel, the next event, and a moment's rest.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cmid_proto::datapath::DataPath as _;
use cmid_proto::{Acks, ChannelKey, CmEvent, Drive, Event, EventKind, IdKey, PolledDevice, PortSpace};

use crate::driver::Driver;
use crate::port::{Port, SLOTS};

/// How long any step may take. Emulated machines are slow.
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

    pub(crate) fn drive(&mut self) -> &mut Drive<PolledDevice<S::Path, S::Poller>> {
        self.driver.drive()
    }

    /// A datagram id.
    pub(crate) fn id(&mut self) -> Result<IdKey> {
        let channel = self.channel;
        Ok(self.drive().create_id(Some(channel), PortSpace::Udp)?)
    }

    /// Lets the driver run for a moment.
    pub(crate) fn rest(&mut self) -> Result<()> {
        self.driver.wait(Duration::from_millis(1))
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let channel = self.channel;
        self.drive().next_event(channel)
    }

    /// Waits for an event of an id.
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

    /// A QP on an id, with every receive posted.
    pub(crate) fn open_port(&mut self, id: IdKey, size: usize) -> Result<Port<S::Path>> {
        let mut port = self.drive().attach_qp(id, |device, attaching| Port::open(&mut **device, attaching, size))?;
        for slot in 0..SLOTS {
            port.post_recv(slot).with_context(|| format!("posting receive {slot}"))?;
        }
        Ok(port)
    }

    /// The id and its QP go.
    pub(crate) fn close(&mut self, id: IdKey) -> Result<()> {
        let deadline = self.drive().within(PATIENCE);
        self.drive().detach_qp(id, |device, id| device.destroy_qp(id))?;
        self.drive().destroy(id, deadline)?;
        Ok(())
    }
}
