//! Two cores on two hosts, each under a driver that makes its steps one by one, in any order that the contract
//! allows.

use std::collections::BTreeSet;

use cmid_proto::{
    AckError, AckToken, Acks, Call, ChannelKey, Core, Device, Ended, Error, Event, Fault, IdKey, Limits, PortSpace,
    Request, Target, Time,
};

use crate::engine::Engine;
use crate::host::HostDevice;
use crate::program::run;
use crate::unseen;

struct Stepwise {
    core: Core,
    device: HostDevice,
    now: Time,
    ends: Vec<IdKey>,
    fault: Option<Fault>,
    /// Whether requests use `Core::perform` if possible. Half of the programs do.
    performs: bool,
}

impl Stepwise {
    /// Makes one call and reports its outcome.
    fn call(&mut self) -> bool {
        let Some((token, call)) = self.core.poll_call() else { return false };
        let outcome = self.device.call(&call, self.core.call_data(token));
        match self.core.handle_outcome(token, outcome) {
            Ok(Some(Ended { target: Target::Id(id), .. })) => self.ends.push(id),
            Ok(_) => {}
            Err(fault) => self.fault = Some(fault),
        }
        true
    }

    fn read(&mut self, channel: ChannelKey) {
        let Some(child) = self.core.wants_event(channel) else { return self.core.wait_for_room(channel) };
        if let Ok(Some(raw)) = self.device.fetch(channel, child) {
            self.fault = self.core.handle_event(channel, raw).err().or(self.fault);
            self.core.handle_readable(channel);
        }
    }
}

impl Engine for Stepwise {
    const COUNTS_ENDS: bool = true;

    fn core(&self) -> &Core {
        &self.core
    }

    fn take_ends(&mut self) -> Vec<IdKey> {
        std::mem::take(&mut self.ends)
    }

    fn open_channel(&mut self, acks: Acks) -> Result<ChannelKey, Error> {
        let channel = self.core.open_channel(acks)?;
        while self.call() {}
        Ok(channel)
    }

    fn close_channel(&mut self, channel: ChannelKey) -> Result<(), Error> {
        self.core.close_channel(channel)?;
        while self.call() {}
        Ok(())
    }

    fn create_id(&mut self, on: Option<ChannelKey>, port_space: PortSpace) -> Result<IdKey, Error> {
        if self.performs {
            if let Some(home) = on {
                if let Some(result) = self.core.perform_create(home, port_space, |call| self.device.call(call, &[])) {
                    return match result {
                        Ok(id) => {
                            self.ends.push(id);
                            Ok(id)
                        }
                        Err(failure) => Err(Error::Failed(failure)),
                    };
                }
            }
        }
        Ok(self.core.create_id(on, port_space)?)
    }

    fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<bool, Error> {
        if self.performs {
            let Stepwise { core, device, now, .. } = self;
            let mut make = |call: &Call, private_data: &[u8]| device.call(call, private_data);
            let performed = core
                .perform(*now, id, &request, deadline, &mut make)
                .or_else(|| core.perform_sync(*now, id, &request, deadline, &mut make));
            if performed.is_some() {
                self.ends.push(id);
                return Ok(false);
            }
        }
        self.core.submit(self.now, id, request, deadline)?;
        let has_qp = self.core.has_qp(id);
        self.device.network.borrow_mut().attach_qp((self.device.host, id), has_qp);
        Ok(false)
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

    fn work(&mut self, now: Time, readable: &[ChannelKey], rng: &mut fastrand::Rng) {
        self.now = now;
        readable.iter().for_each(|&channel| self.core.handle_readable(channel));
        for _ in 0..rng.u8(1..60) {
            match rng.u8(..4) {
                0 => self.core.handle_timeout(now),
                1 => {
                    if let Some(channel) = self.core.poll_readable() {
                        self.read(channel);
                    }
                }
                _ => drop(self.call()),
            }
        }
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
            ends: Vec::new(),
            fault: None,
            performs: rng.bool(),
        });
    });
    assert!(!usual || unseen(&seen).is_empty(), "no program was in {:?}", unseen(&seen));
}
