//! A driver on the kernel's own interface, whose answers are arbitrary bytes.
//!
//! Commands succeed or fail with any errno, and answer with any bytes of any length. Nothing panics. Each command has
//! the lengths that its header states. Each event that the device reports is what the kernel's bytes say, decoded
//! once more here; an event of an id that is not the device's is not reported, and the id of such a request is
//! destroyed.

mod answers;
mod judge;

use cmid_proto::drive::ReleasedId;
use cmid_proto::{AckToken, ChannelKey, CmEvent, ConnParam, Drive, Event, EventKind, GroupKey, IdKey, Request, Time};
use cmid_verbs::{KernelCm, KernelHandle, with_kernel};
use std::cell::RefCell;
use std::rc::Rc;

use crate::input::Input;
use crate::methods::make;
use crate::say::say;
use crate::script;
use answers::Kernel;
use judge::Judged;

/// Runs the input: its first half chooses what the application does, its second half is the kernel's.
pub fn run(data: &[u8]) {
    let (choices, answers) = data.split_at(data.len().div_ceil(2));
    let kernel = Rc::new(RefCell::new(Kernel::new(answers)));
    let script = Rc::clone(&kernel);
    with_kernel(move |command, into| script.borrow_mut().answer(command, into), || play(choices, &kernel));
}

fn play(choices: &[u8], kernel: &Rc<RefCell<Kernel>>) {
    let mut input = Input::new(choices);
    let Ok(device) = KernelCm::open(input.any()) else { return };
    let limits = script::limits(&mut input);
    let mut world = World {
        drive: Drive::new(Judged { device, kernel: Rc::clone(kernel), ece: None }, limits),
        ids: Vec::new(),
        channels: Vec::new(),
        groups: Vec::new(),
        tokens: Vec::new(),
        released: None,
        now: Time(1),
    };
    while !input.is_over() {
        world.step(&mut input);
        world.drive.core().check();
        while let Some(fault) = world.drive.next_fault() {
            say(|| format!("fault {fault:?}"));
        }
    }
}

struct World {
    drive: Drive<Judged>,
    /// Keys that the core gave, stale ones included.
    ids: Vec<IdKey>,
    channels: Vec<ChannelKey>,
    groups: Vec<GroupKey>,
    tokens: Vec<AckToken>,
    released: Option<ReleasedId<KernelHandle>>,
    now: Time,
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0 => {
                let opened = self.drive.open_channel(script::acks(input));
                say(|| format!("opens a channel: {opened:?}"));
                self.channels.extend(opened);
            }
            1 | 2 => {
                let on = input.pick(&self.channels);
                let created = self.drive.create_id(on, script::port_space(input));
                say(|| format!("creates an id on {on:?}: {created:?}"));
                self.ids.extend(created);
            }
            3..=7 => self.request(input),
            8..=11 => self.read(),
            12 | 13 => self.take(input),
            14 => self.manage(input),
            _ => self.look(input),
        }
    }

    fn request(&mut self, input: &mut Input<'_>) {
        let Some(id) = input.pick(&self.ids) else { return };
        let request = script::request(input, &self.channels, &self.groups);
        let deadline = script::deadline(input, self.now);
        let what = format!("{request:?} on {id}");
        let result = make(&mut self.drive, id, request, deadline);
        if let Request::Join { addr, .. } = request {
            self.groups.extend(self.drive.core().group_at(id, addr).filter(|_| result.is_ok()));
        }
        say(|| format!("{what}: {result:?}"));
    }

    /// Marks all channels as readable and makes a turn; the time goes on.
    fn read(&mut self) {
        self.now = Time(self.now.0 + 1);
        self.drive.set_now(self.now);
        let channels: Vec<_> = self.drive.core().channels().collect();
        channels.into_iter().for_each(|channel| self.drive.readable(channel));
        let turn = self.drive.run(8);
        say(|| format!("a turn: {turn:?}"));
    }

    /// Takes an event, or gives an ack.
    fn take(&mut self, input: &mut Input<'_>) {
        if let Some(token) = (!self.tokens.is_empty() && input.once_in(2)).then(|| self.tokens.swap_remove(0)) {
            let result = self.drive.ack(token);
            say(|| format!("acks: {result:?}"));
            return;
        }
        let Some(channel) = input.pick(&self.channels) else { return };
        let Some(event) = self.drive.next_event(channel) else { return };
        say(|| format!("delivers {event:?}"));
        if !self.ids.contains(&event.id) {
            self.ids.push(event.id);
        }
        let Event { id, kind: EventKind::Cm(kind), ack_token, .. } = event else { return };
        self.tokens.extend(ack_token);
        if !input.once_in(4) {
            self.follow(id, kind);
        }
    }

    /// Makes the request with which a connection goes on.
    fn follow(&mut self, id: IdKey, kind: CmEvent) {
        let drive = &mut self.drive;
        // Of a QP of the application's own: the device has none.
        let param = ConnParam { qp_num: 7, ..ConnParam::default() };
        let result = match kind {
            CmEvent::AddrResolved => drive.resolve_route(id, Time::NEVER),
            CmEvent::RouteResolved => drive.connect(id, param, b"data", Time::NEVER),
            CmEvent::ConnectRequest => drive.accept(id, param, b"data", Time::NEVER),
            CmEvent::ConnectResponse => drive.establish(id),
            CmEvent::Established | CmEvent::Disconnected => drive.disconnect(id, Time::NEVER),
            CmEvent::AddrError
            | CmEvent::RouteError
            | CmEvent::ConnectError
            | CmEvent::Unreachable
            | CmEvent::Rejected
            | CmEvent::DeviceRemoval
            | CmEvent::MulticastJoin
            | CmEvent::MulticastError
            | CmEvent::AddrChange
            | CmEvent::TimewaitExit
            | CmEvent::AddrinfoResolved
            | CmEvent::AddrinfoError
            | CmEvent::User
            | CmEvent::Internal
            | CmEvent::Unknown(_) => return,
        };
        say(|| format!("follows {kind} of {id}: {result:?}"));
    }

    fn manage(&mut self, input: &mut Input<'_>) {
        let Some(channel) = input.pick(&self.channels) else { return };
        let result = match input.below(5) {
            0 => self.drive.close_channel(channel),
            1 => self.drive.pause_channel(channel),
            2 => self.drive.resume_channel(channel),
            3 => return self.adopt(),
            _ => {
                let Some(id) = input.pick(&self.ids) else { return };
                self.drive.release(id).map(|released| self.released = Some(released))
            }
        };
        say(|| format!("manages {channel}: {result:?}"));
    }

    fn adopt(&mut self) {
        let Some(released) = self.released.take() else { return };
        match self.drive.adopt(released) {
            Ok(id) => self.ids.push(id),
            Err(error) => self.released = error.given,
        }
    }

    /// What the device knows of an id.
    fn look(&mut self, input: &mut Input<'_>) {
        let Some(id) = input.pick(&self.ids) else { return };
        let device = &self.drive.device().device;
        use cmid_proto::Device as _;
        let known = (device.local_addr(id), device.peer_addr(id), device.remote_ece(id));
        say(|| format!("looks at {id}: {known:?}"));
    }
}
