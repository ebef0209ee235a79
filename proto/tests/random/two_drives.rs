//! Two drives on two hosts.

use std::collections::BTreeSet;

use cmid_proto::{
    AckError, AckToken, Acks, ChannelKey, Core, Drive, Error, Event, Fault, IdKey, Limits, PortSpace, Progress,
    RejectReason, Request, Time,
};

use crate::engine::Engine;
use crate::host::HostDevice;
use crate::program::run;
use crate::unseen;

impl Engine for Drive<HostDevice> {
    fn core(&self) -> &Core {
        Drive::core(self)
    }

    fn open_channel(&mut self, acks: Acks) -> Result<ChannelKey, Error> {
        Drive::open_channel(self, acks)
    }

    fn close_channel(&mut self, channel: ChannelKey) -> Result<(), Error> {
        Drive::close_channel(self, channel)
    }

    fn create_id(&mut self, on: Option<ChannelKey>, port_space: PortSpace) -> Result<IdKey, Error> {
        Drive::create_id(self, on, port_space)
    }

    fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<bool, Error> {
        match request {
            Request::Bind { addr } => self.bind(id, addr)?,
            Request::ResolveAddr { src, dst } => self.resolve_addr(id, src, dst, deadline)?,
            Request::ResolveRoute => self.resolve_route(id, deadline)?,
            Request::Listen { backlog } => self.listen(id, backlog)?,
            Request::AttachQp => self.attach_qp(id, |device, attaching| {
                device.network.borrow_mut().attach_qp((device.host, attaching.id()), true);
                Ok(())
            })?,
            Request::DetachQp => self.detach_qp(id, |device, id| {
                device.network.borrow_mut().attach_qp((device.host, id), false);
                Ok(())
            })?,
            Request::Connect { param, private_data } => self.connect(id, param, private_data, deadline)?,
            Request::Accept { param, private_data } => self.accept(id, param, private_data, deadline)?,
            Request::Reject { reason: RejectReason::Consumer, private_data } => self.reject(id, private_data)?,
            Request::Reject { reason: RejectReason::Ece, private_data } => self.reject_ece(id, private_data)?,
            Request::Establish => self.establish(id)?,
            Request::Disconnect => self.disconnect(id, deadline)?,
            Request::Teardown => self.teardown(id, deadline)?,
            Request::Notify => self.notify_established(id)?,
            Request::GetRequest => self.get_request(id, deadline)?,
            Request::Join { addr, send_only } => self.join(id, addr, send_only, deadline).map(drop)?,
            Request::Leave { group } => return Ok(self.leave(id, group)? == Progress::Done),
            Request::SetOption { option } => self.set_option(id, option)?,
            Request::SetEce { ece } => self.set_ece(id, ece)?,
            Request::Migrate { to } => return Ok(self.migrate(id, to, deadline)? == Progress::Done),
            Request::DestroyNow => self.destroy_now(id)?,
            Request::Destroy => return Ok(self.destroy(id, deadline)? == Progress::Done),
        }
        Ok(true)
    }

    fn next_event(&mut self, on: ChannelKey) -> Option<Event> {
        Drive::next_event(self, on)
    }

    fn next_fault(&mut self) -> Option<Fault> {
        Drive::next_fault(self)
    }

    fn ack(&mut self, ack_token: AckToken) -> Result<(), AckError> {
        Drive::ack(self, ack_token)
    }

    fn work(&mut self, now: Time, readable: &[ChannelKey], rng: &mut fastrand::Rng) -> Option<(ChannelKey, Event)> {
        self.set_now(now);
        readable.iter().for_each(|&channel| self.readable(channel));
        let _ = self.run(rng.usize(1..6));
        None
    }

    fn has_work(&self) -> bool {
        Drive::has_work(self)
    }

    fn rename(&mut self, id: IdKey) -> Option<IdKey> {
        let released_id = self.release(id).ok()?;
        Some(self.adopt(released_id).expect("there is room for the released id"))
    }
}

#[test]
fn the_laws_hold_for_two_drives() {
    let mut seen = BTreeSet::new();
    let usual = crate::for_seeds(300, |rng| {
        run(rng, &mut seen, |network, host, rng, limits: Limits| {
            Drive::new(HostDevice::new(network, host, rng), limits)
        });
    });
    assert!(!usual || unseen(&seen).is_empty(), "no program was in {:?}", unseen(&seen));
}
