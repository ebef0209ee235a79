//! A driver on the kernel backend with the scripted kernel, and the checks after a failure.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use cmid_proto::{
    Acks, Call, ChannelKey, CmEvent, ConnParam, Device, DeviceLayer, Drive, Errno, Error, Event, EventKind, Failure,
    Fault, IdKey, Limits, Outcome, PortSpace, RawEvent, State, Target, Time,
};
use cmid_verbs::{KernelCm, with_kernel};

use super::scripted::Scripted;

/// The device. It records the channel of each command.
pub(crate) struct PolledChannel {
    device: KernelCm,
    kernel: Rc<RefCell<Scripted>>,
}

impl DeviceLayer for PolledChannel {
    cmid_proto::layer_on!(device: KernelCm);

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.kernel.borrow_mut().channel = Some(on);
        self.device.fetch(on, child)
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        if let Call::CreateId { channel, .. } | Call::Migrate { to: channel, .. } = *call {
            self.kernel.borrow_mut().channel = Some(channel);
        }
        let outcome = self.device.call(call, private_data);
        if let (Call::CloseChannel { channel }, Ok(())) = (call, &outcome) {
            assert_eq!(self.kernel.borrow_mut().closed(*channel), 0, "ids end only with their channel");
        }
        outcome
    }
}

/// The reason why a connection ended early.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The request with this name failed, and the id had this state before.
    Request(&'static str, Option<State>, Error),
    /// This event did not come.
    Event(CmEvent),
    /// CONNECT_ERROR came in place of ESTABLISHED, with this status.
    NotCompleted(i32),
}

/// One connection. `channels` are the two channels of the application.
pub(crate) struct World {
    pub(crate) drive: Drive<PolledChannel>,
    pub(crate) channels: [ChannelKey; 2],
    /// Whether `Core::check` runs, which allocates.
    pub(crate) checks: bool,
    faults: Vec<Fault>,
    all: Vec<ChannelKey>,
    kernel: Rc<RefCell<Scripted>>,
}

impl World {
    pub(crate) fn new(kernel: &Rc<RefCell<Scripted>>) -> Self {
        let device = KernelCm::open(16).expect("the scripted kernel");
        let mut drive = Drive::new(PolledChannel { device, kernel: Rc::clone(kernel) }, Limits::default());
        let channels = [(); 2].map(|()| drive.open_channel(Acks::OnDelivery).expect("a channel"));
        World { drive, channels, checks: true, faults: Vec::new(), all: Vec::new(), kernel: Rc::clone(kernel) }
    }

    pub(crate) fn create(&mut self, space: PortSpace) -> Result<IdKey, Ended> {
        let made = self.drive.create_id(Some(self.channels[0]), space);
        self.check();
        made.map_err(|error| Ended::Request("create_id", None, error))
    }

    /// Makes a request on an id.
    pub(crate) fn request<T>(
        &mut self,
        name: &'static str,
        id: IdKey,
        request: impl FnOnce(&mut Drive<PolledChannel>) -> Result<T, Error>,
    ) -> Result<T, Ended> {
        let before = self.drive.core().state(id);
        let made = request(&mut self.drive);
        self.check();
        made.map_err(|error| {
            if let Error::Failed(Failure { state, target, .. }) = error {
                assert_eq!(target, Target::Id(id), "{name}: {error}");
                assert_eq!(Some(state), self.drive.core().state(id).or(Some(State::Idle)), "{name}: {error}");
            }
            Ended::Request(name, before, error)
        })
    }

    /// Resolves the address and the route of the peer.
    pub(crate) fn resolves(&mut self, id: IdKey) -> Result<(), Ended> {
        self.request("resolve_addr", id, |drive| drive.resolve_addr(id, None, ([10, 0, 0, 2], 7000).into(), NEVER))?;
        let _ = self.event(CmEvent::AddrResolved)?;
        self.request("resolve_route", id, |drive| drive.resolve_route(id, NEVER))?;
        let _ = self.event(CmEvent::RouteResolved)?;
        Ok(())
    }

    pub(crate) fn listener(&mut self) -> Result<IdKey, Ended> {
        let id = self.create(PortSpace::Tcp)?;
        self.request("bind_addr", id, |drive| drive.bind(id, local()))?;
        self.request("listen", id, |drive| drive.listen(id, 4))?;
        Ok(id)
    }

    pub(crate) fn disconnects(&mut self, id: IdKey) -> Result<(), Ended> {
        self.request("disconnect", id, |drive| drive.disconnect(id, NEVER))?;
        let _ = self.event(CmEvent::Disconnected)?;
        self.destroys(id)
    }

    pub(crate) fn destroys(&mut self, id: IdKey) -> Result<(), Ended> {
        self.request("destroy_id", id, |drive| drive.destroy_now(id))
    }

    /// Takes the next event of the application's first channel, or of its second.
    pub(crate) fn event(&mut self, kind: CmEvent) -> Result<Event, Ended> {
        // A read that fails is made again.
        for _ in 0..4 {
            self.turn();
            let events = self.channels.map(|channel| self.drive.next_event(channel));
            if let Some(event) = events.into_iter().flatten().next() {
                match (kind, event.kind) {
                    (CmEvent::Established, EventKind::Cm(CmEvent::ConnectError)) => {
                        return Err(Ended::NotCompleted(event.status));
                    }
                    // The query of the id has failed.
                    (CmEvent::AddrResolved, EventKind::Cm(CmEvent::AddrError))
                    | (CmEvent::RouteResolved, EventKind::Cm(CmEvent::RouteError)) => {
                        assert_eq!(event.status, -1);
                        return Err(Ended::Event(kind));
                    }
                    _ => {}
                }
                assert_eq!(event.kind, EventKind::Cm(kind), "status {}", event.status);
                return Ok(event);
            }
        }
        Err(Ended::Event(kind))
    }

    fn check(&self) {
        if self.checks {
            self.drive.core().check();
        }
    }

    fn turn(&mut self) {
        // All channels, including the private ones of listeners. The list keeps its memory.
        self.all.clear();
        self.all.extend(self.drive.core().channels());
        self.all.iter().for_each(|&channel| self.drive.readable(channel));
        let _ = self.drive.run(32);
        self.check();
        self.faults.extend(std::iter::from_fn(|| self.drive.next_fault()));
    }

    /// Destroys all ids, closes all channels, and checks that nothing is left.
    pub(crate) fn end(mut self) -> Vec<Fault> {
        // A failed destroy can be repeated. A child may end with its listener.
        for _ in 0..2 {
            let ids: Vec<_> = self.drive.core().ids().collect();
            for id in ids {
                let _ = self.drive.destroy_now(id);
                self.turn();
            }
        }
        self.turn();
        for channel in self.channels {
            if let Err(error) = self.drive.close_channel(channel) {
                panic!("close_channel: {error}");
            }
        }
        self.turn();
        assert_eq!((self.drive.core().ids().count(), self.drive.core().channels().count()), (0, 0));
        assert_eq!(self.kernel.borrow().counts(), (0, 0), "ids and memberships of the kernel");
        self.faults
    }
}

/// A time limit that does not pass.
pub(crate) const NEVER: Time = Time::NEVER;

pub(crate) fn local() -> SocketAddr {
    ([10, 0, 0, 1], 7000).into()
}

/// The parameters for a QP of the application.
pub(crate) fn param() -> ConnParam {
    ConnParam { qp_num: 7, ..ConnParam::default() }
}

/// Calls `run` with this kernel.
pub(crate) fn on<T>(kernel: &Rc<RefCell<Scripted>>, run: impl FnOnce() -> T) -> T {
    let script = Rc::clone(kernel);
    with_kernel(move |command, into| script.borrow_mut().answer(command, into), run)
}
