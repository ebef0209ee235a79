//! What all roles need: a driver with a channel, the next event, and a moment's rest.

use std::ops::DerefMut;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cmid_conformance::Driver;
use cmid_datapath::DataPath;
use cmid_proto::{Acks, ChannelKey, CmEvent, Drive, Event, EventKind, IdKey, PortSpace};

use crate::port::{Port, SLOTS};

/// How long any step may take. Emulated machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A driver and its channel.
pub(crate) struct Peer<S> {
    driver: S,
    channel: ChannelKey,
}

impl<S, D> Peer<S>
where
    S: Driver,
    S::Device: DerefMut<Target = D>,
    D: DataPath,
{
    pub(crate) fn new(mut driver: S) -> Result<Self> {
        let channel = driver.drive().open_channel(Acks::OnDelivery)?;
        Ok(Peer { driver, channel })
    }

    pub(crate) fn drive(&mut self) -> &mut Drive<S::Device> {
        self.driver.drive()
    }

    /// A datagram id.
    pub(crate) fn id(&mut self) -> Result<IdKey> {
        let channel = self.channel;
        Ok(self.drive().create_id(Some(channel), PortSpace::Udp)?)
    }

    /// Lets the driver run for a moment.
    pub(crate) fn rest(&mut self) -> Result<()> {
        Ok(self.driver.wait(Duration::from_millis(1))?)
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
    pub(crate) fn open_port(&mut self, id: IdKey, size: usize) -> Result<Port<D>> {
        let mut port =
            self.drive().attach_qp(id, |device, attaching| Port::open(device.deref_mut(), attaching, size))?;
        for slot in 0..SLOTS {
            port.post_recv(slot).with_context(|| format!("posting receive {slot}"))?;
        }
        Ok(port)
    }

    /// The id and its QP go.
    pub(crate) fn close(&mut self, id: IdKey) -> Result<()> {
        let deadline = self.drive().within(PATIENCE);
        self.drive().detach_qp(id, |device, id| device.deref_mut().destroy_qp(id))?;
        self.drive().destroy(id, deadline)?;
        Ok(())
    }
}
