//! `c/serve.c` on cmid, without the echo: the passive side.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use cmid_harness::Make;
use cmid_proto::datapath::DataPath;
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Event, IdKey, PortSpace, Time};
use cmid_verbs::{Backend, Caps, Cq, Pd, Verbs};

use crate::mark::in_parts;
use crate::param::PARAM;
use crate::qps::Qps;
use crate::wire::{self, Wants};

struct Passive<W> {
    driver: W,
    channel: ChannelKey,
    memory: Option<(Pd, Cq)>,
    qps: Qps,
    qp_num: u32,
    ended: u32,
}

/// The job: `count` connections in each part.
pub(crate) fn run<W: Make<Verbs>>(at: SocketAddr, count: u32, on: Backend) -> Result<()> {
    let mut driver = W::make(Verbs::open_with(on)?)?;
    let drive = driver.drive();
    let channel = drive.open_channel(Acks::OnDelivery)?;
    let listener = drive.create_id(Some(channel), PortSpace::Tcp)?;
    drive.bind(listener, at)?;
    drive.listen(listener, 1024)?;
    let mut passive = Passive { driver, channel, memory: None, qps: Qps::default(), qp_num: 0x20000, ended: 0 };
    let mut until = 0;
    in_parts(|| {
        until += count;
        while passive.ended < until {
            passive.driver.wait(None)?;
            // The event is large, so it is used by reference.
            while let Some(event) = &passive.driver.drive().next_event(passive.channel) {
                passive.handle(event)?;
            }
        }
        Ok(())
    })
}

impl<W: Make<Verbs>> Passive<W> {
    fn handle(&mut self, event: &Event) -> Result<()> {
        let id = event.id;
        match event.cm() {
            Some(CmEvent::ConnectRequest) => self.accept(id, wire::read(&event.private_data)?.0)?,
            Some(CmEvent::Disconnected) => {
                let drive = self.driver.drive();
                drive.disconnect(id, Time::NEVER)?;
                // Drops the handle. The destruction of the id destroys the QP.
                drop(self.qps.take(id));
                drive.destroy(id, Time::NEVER)?;
                self.ended += 1;
            }
            Some(CmEvent::Established | CmEvent::TimewaitExit) => {}
            _ => bail!("{} with status {}", event.kind, event.status),
        }
        Ok(())
    }

    fn accept(&mut self, id: IdKey, wants: u32) -> Result<()> {
        let mut param = PARAM;
        let drive = self.driver.drive();
        if wants == Wants::Bare as u32 {
            self.qp_num += 1;
            param = ConnParam { qp_num: self.qp_num, ..PARAM };
        } else {
            if self.memory.is_none() {
                let device = drive.device_mut();
                self.memory = Some((device.alloc_pd(id)?, device.create_cq(id, 16_384)?));
            }
            if let Some((pd, cq)) = &self.memory {
                let caps = Caps { max_send_wr: 64, max_recv_wr: 64, ..Caps::default() };
                let qp = drive.attach_qp(id, |device, attaching| device.create_qp(attaching, pd, cq, cq, caps))?;
                self.qps.put(id, qp);
            }
        }
        let hello = wire::hello(Wants::Bare, cmid_proto::datapath::Remote { addr: 0, rkey: 0 });
        Ok(drive.accept(id, param, &hello, Time::NEVER)?)
    }
}
