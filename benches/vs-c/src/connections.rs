//! `c/connections.c` on cmid: the active side, which makes and ends connections, a given number at once.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use cmid_harness::Make;
use cmid_proto::datapath::DataPath;
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Event, IdKey, PortSpace, Time};
use cmid_verbs::{Backend, Caps, Cq, Pd, Verbs};

use crate::mark::in_parts;
use crate::param::PARAM;
use crate::qps::Qps;
use crate::wire::{self, Wants};

/// The time limit for resolving, as in C. Nothing else has a deadline there.
pub(crate) const RESOLVE: Duration = Duration::from_secs(10);

struct Active<W> {
    driver: W,
    channel: ChannelKey,
    to: SocketAddr,
    wants: Wants,
    to_begin: u32,
    to_end: u32,
    /// Made with the first connection.
    memory: Option<(Pd, Cq)>,
    qps: Qps,
    /// The QP numbers to send without QPs.
    qp_num: u32,
}

/// The job: `count` connections in each part.
pub(crate) fn run<W: Make<Verbs>>(to: SocketAddr, wants: Wants, at_once: u32, count: u32, on: Backend) -> Result<()> {
    let mut driver = W::make(Verbs::open_with(on)?)?;
    let channel = driver.drive().open_channel(Acks::OnDelivery)?;
    let (to_begin, to_end, memory, qps, qp_num) = (0, 0, None, Qps::default(), 0x10000);
    let mut active = Active { driver, channel, to, wants, to_begin, to_end, memory, qps, qp_num };
    in_parts(|| active.part(at_once, count))
}

impl<W: Make<Verbs>> Active<W> {
    fn part(&mut self, at_once: u32, count: u32) -> Result<()> {
        (self.to_begin, self.to_end) = (count, count);
        for _ in 0..at_once {
            self.begin()?;
        }
        while self.to_end > 0 {
            self.driver.wait(None)?;
            // The event is large, so it is used by reference.
            while let Some(event) = &self.driver.drive().next_event(self.channel) {
                self.handle(event)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        if self.to_begin == 0 {
            return Ok(());
        }
        self.to_begin -= 1;
        let drive = self.driver.drive();
        let id = drive.create_id(Some(self.channel), PortSpace::Tcp)?;
        drive.resolve_addr(id, None, self.to, drive.within(RESOLVE))?;
        Ok(())
    }

    fn handle(&mut self, event: &Event) -> Result<()> {
        let id = event.id;
        match event.cm() {
            Some(CmEvent::AddrResolved) => {
                let drive = self.driver.drive();
                drive.resolve_route(id, drive.within(RESOLVE))?;
            }
            Some(CmEvent::RouteResolved) => self.connect(id)?,
            Some(CmEvent::ConnectResponse) => {
                let drive = self.driver.drive();
                drive.establish(id)?;
                drive.disconnect(id, Time::NEVER)?;
            }
            Some(CmEvent::Established) => self.driver.drive().disconnect(id, Time::NEVER)?,
            Some(CmEvent::Disconnected) => self.end(id)?,
            Some(CmEvent::TimewaitExit) => {}
            _ => bail!("{} with status {}", event.kind, event.status),
        }
        Ok(())
    }

    fn connect(&mut self, id: IdKey) -> Result<()> {
        let hello = wire::hello(self.wants, cmid_proto::datapath::Remote { addr: 0, rkey: 0 });
        let mut param = PARAM;
        let drive = self.driver.drive();
        if self.wants == Wants::Bare {
            self.qp_num += 1;
            param = ConnParam { qp_num: self.qp_num, ..PARAM };
        } else {
            if self.memory.is_none() {
                let device = drive.device_mut();
                self.memory = Some((device.alloc_pd(id)?, device.create_cq(id, 16_384)?));
            }
            if let Some((pd, cq)) = &self.memory {
                let qp = drive
                    .attach_qp(id, |device, attaching| device.create_qp(attaching, pd, cq, cq, Caps::default()))?;
                self.qps.put(id, qp);
            }
        }
        Ok(drive.connect(id, param, &hello, Time::NEVER)?)
    }

    fn end(&mut self, id: IdKey) -> Result<()> {
        // Drops the handle. The destruction of the id destroys the QP.
        drop(self.qps.take(id));
        self.driver.drive().destroy(id, Time::NEVER)?;
        self.to_end -= 1;
        self.begin()
    }
}
