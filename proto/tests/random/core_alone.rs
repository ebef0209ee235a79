//! Two cores on two hosts, each under a driver that makes its steps one by one, in any order that the contract
//! allows.

use std::collections::BTreeSet;

use cmid_proto::{
    AckError, AckToken, Acks, Begun, ChannelKey, Core, Device, Error, Event, Fault, Flow, IdKey, Limits, PortSpace,
    Progress, Request, Time,
};

use crate::engine::Engine;
use crate::host::HostDevice;
use crate::program::run;
use crate::unseen;

struct Stepwise {
    core: Core,
    device: HostDevice,
    now: Time,
    fault: Option<Fault>,
}

/// Makes the calls of a request.
fn finish(device: &mut HostDevice, mut begun: Begun<'_, '_>) -> Result<Progress, Error> {
    loop {
        let outcome = begun.call().map_or(Ok(()), |call| device.call(&call, begun.private_data()));
        match begun.end(outcome) {
            Flow::Next(next) => begun = next,
            Flow::Done(result) => return result,
        }
    }
}

impl Stepwise {
    /// Makes one of the calls that follow.
    fn follow(&mut self) {
        let Stepwise { core, device, fault, .. } = self;
        let result = match core.next().map(|begun| finish(device, begun)) {
            None => core.next_child().map(|begun| finish(device, begun)),
            done => done,
        };
        if let Some(Err(Error::Fault(it))) = result {
            *fault = Some(it);
        }
    }

    /// Reads a channel. The event is taken if it is the next one of the channel `to`.
    fn read(&mut self, channel: ChannelKey, to: Option<ChannelKey>) -> Option<(ChannelKey, Event)> {
        let Some(child) = self.core.wants_event(channel) else {
            self.core.wait_for_room(channel);
            return None;
        };
        let raw = self.device.fetch(channel, child).ok()??;
        let result = match to {
            Some(to) => {
                let (result, event) = self.core.take_event(channel, &raw, to);
                result.map(|_| event.map(|event| (to, event)))
            }
            None => self.core.handle_event(channel, raw).map(|_| None),
        };
        self.core.handle_readable(channel);
        if let Ok(Some((to, event))) = &result {
            let home = self.core.channel(event.listener.unwrap_or(event.id));
            assert_eq!(home, Some(*to), "{} of {} is taken elsewhere", event.kind, event.id);
        }
        result.unwrap_or_else(|fault| {
            self.fault = Some(fault);
            None
        })
    }
}

impl Engine for Stepwise {
    fn core(&self) -> &Core {
        &self.core
    }

    fn open_channel(&mut self, acks: Acks) -> Result<ChannelKey, Error> {
        let (channel, begun) = self.core.open_channel(acks)?;
        finish(&mut self.device, begun)?;
        Ok(channel)
    }

    fn close_channel(&mut self, channel: ChannelKey) -> Result<(), Error> {
        finish(&mut self.device, self.core.close_channel(channel)?).map(drop)
    }

    fn create_id(&mut self, on: Option<ChannelKey>, port_space: PortSpace) -> Result<IdKey, Error> {
        let (id, begun) = self.core.create_id(on, port_space)?;
        finish(&mut self.device, begun)?;
        Ok(id)
    }

    fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<bool, Error> {
        let progress = finish(&mut self.device, self.core.begin(self.now, id, &request, deadline)?)?;
        let has_qp = self.core.id_info(id).is_some_and(|it| it.has_qp);
        self.device.network.borrow_mut().attach_qp((self.device.host, id), has_qp);
        Ok(progress == Progress::Done)
    }

    fn next_event(&mut self, on: ChannelKey) -> Option<Event> {
        self.core.poll_event(on)
    }

    fn next_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    fn ack(&mut self, ack_token: AckToken) -> Result<(), AckError> {
        self.core.ack(ack_token)
    }

    fn work(&mut self, now: Time, readable: &[ChannelKey], rng: &mut fastrand::Rng) -> Option<(ChannelKey, Event)> {
        self.now = now;
        readable.iter().for_each(|&channel| self.core.handle_readable(channel));
        for _ in 0..rng.u8(1..60) {
            match rng.u8(..4) {
                0 => self.core.handle_timeout(now),
                1 => {
                    if let Some(channel) = self.core.poll_readable() {
                        let channels: Vec<_> = self.core.channels().collect();
                        let to = if rng.bool() { rng.choice(channels) } else { None };
                        let taken = self.read(channel, to);
                        if taken.is_some() {
                            return taken;
                        }
                    }
                }
                _ => self.follow(),
            }
        }
        None
    }

    fn has_work(&self) -> bool {
        self.core.has_work() || self.core.poll_timeout().is_some_and(|(due, _)| due <= self.now)
    }

    fn rename(&mut self, id: IdKey) -> Option<IdKey> {
        let (released, old) = self.core.release(id).ok()?;
        let Ok((new, channel)) = self.core.adopt(released) else { panic!("there is room for the released id") };
        self.device.adopt(new, channel, (id, old)).expect("this device adopts everything");
        Some(new)
    }
}

#[test]
fn the_laws_hold_for_a_core_by_itself() {
    let mut seen = BTreeSet::new();
    let usual = crate::for_seeds(600, |rng| {
        run(rng, &mut seen, |network, host, rng, limits: Limits| Stepwise {
            core: Core::new(limits),
            device: HostDevice::new(network, host, rng),
            now: Time::ZERO,
            fault: None,
        });
    });
    assert!(!usual || unseen(&seen).is_empty(), "no program was in {:?}", unseen(&seen));
}
