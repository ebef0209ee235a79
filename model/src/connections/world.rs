//! One state: the core, the device, the application's books; and what each step does to them.

use core::hash::{Hash, Hasher};

use cmid_proto::{
    About, Admission, Call, ChannelKey, CmEvent, Core, Ended, Errno, Event, EventKind, Fault, IdKey, Outcome, Request,
    State, Time, Token, Verb,
};

use super::account::{Account, Asked};
use super::device::Device;
use super::kernel::Kernel;
use super::law::Law;
use super::mint;
use super::scene::{Role, Scene};
use super::view;
use super::witness::{Seen, Witness};

/// It is always this time; a core counts only how far off a deadline is.
pub(super) const NOW: Time = Time::ZERO;
/// The deadline of all requests that have one.
pub(super) const SOON: Time = Time(view::NAMES << 8);
/// What calls fail with. After this one an id whose address was to be resolved stays bound; all others have no such case.
const ERRNO: Errno = Errno::ENETUNREACH;

/// A step from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The application creates the next id, on the first channel.
    Create,
    /// It asks for something, until [`Time::NEVER`] or soon.
    Submit(IdKey, Request<'static>, Time),
    /// It takes the next event of a channel.
    Deliver(ChannelKey),
    /// It acks an event of an id.
    Ack(IdKey),
    /// The driver makes the next call, which may fail.
    Call {
        /// Whether it fails.
        fails: bool,
    },
    /// The driver reports what the call returned.
    Answer,
    /// The driver reads the next channel that is to be read.
    Read,
    /// Something happens at the device.
    Happen(IdKey, CmEvent),
    /// All deadlines pass.
    Expire,
}

/// A state of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    pub(super) core: Core,
    pub(super) around: Around,
    next_tag: i32,
}

/// What is around the core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Around {
    pub(super) device: Device,
    pub(super) accounts: Vec<Account>,
    /// Those that the application has opened.
    pub(super) channels: Vec<ChannelKey>,
    pub(super) under_way: Option<UnderWay>,
    pub(super) created: usize,
    pub(super) to_sync: u8,
    pub(super) children: u8,
    pub(super) broken: Option<Law>,
}

/// A call between its making and the report of what it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct UnderWay {
    token: Token,
    pub(super) call: Call,
    outcome: Outcome,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, into: &mut H) {
        view::hash(&self.core, &self.around, into);
    }
}

impl World {
    /// The channels are open, and nothing else has happened.
    pub(super) fn new(scene: &Scene) -> Self {
        let around = Around {
            device: Device::default(),
            accounts: Vec::new(),
            channels: Vec::new(),
            under_way: None,
            created: 0,
            to_sync: 0,
            children: 0,
            broken: None,
        };
        let mut world = World { core: Core::new(scene.limits), around, next_tag: view::TAGS.start };
        for &acks in scene.channels {
            let channel = world.core.open_channel(acks).expect("the limits leave room for the channels");
            world.around.channels.push(channel);
            world.make_all(&Seen::default()).expect("nothing goes wrong");
        }
        world
    }

    /// Everything that may happen next.
    pub(super) fn actions(&self, scene: &Scene, all: &mut Vec<Action>) {
        let around = &self.around;
        let in_all: usize = around.accounts.iter().map(|account| self.events_of(account)).sum();
        if around.created < scene.roles.len() {
            all.push(Action::Create);
        }
        for account in &around.accounts {
            let id = account.id;
            if account.known && self.core.state(id).is_some() {
                self.requests(scene, id, account.role, all);
            }
            if account.owed > 0 {
                all.push(Action::Ack(id));
            }
            if self.events_of(account) < scene.events && in_all < scene.events_in_all {
                let happenings = around.device.happenings(id, scene.removal).into_iter().map(|(kind, _)| kind);
                let has_room = |kind: &CmEvent| *kind != CmEvent::ConnectRequest || around.children < scene.children;
                all.extend(happenings.filter(has_room).map(|kind| Action::Happen(id, kind)));
            }
        }
        all.extend(self.homes().into_iter().map(Action::Deliver));
        match around.under_way {
            Some(_) => all.push(Action::Answer),
            None => {
                all.push(Action::Call { fails: false });
                all.extend(scene.failures.then_some(Action::Call { fails: true }));
            }
        }
        if self.core.has_work() {
            all.push(Action::Read);
        }
        if self.core.poll_timeout().is_some() {
            all.push(Action::Expire);
        }
    }

    /// The events of an id that are unread, undelivered, or not acked.
    fn events_of(&self, account: &Account) -> usize {
        self.around.device.unread_of(account.id) + account.undelivered() + usize::from(account.owed)
    }

    fn requests(&self, scene: &Scene, id: IdKey, role: Role, all: &mut Vec<Action>) {
        for request in scene.requests(&self.core, id, role, &self.around.channels) {
            let to_sync = request == Request::Migrate { to: None };
            if (to_sync && self.around.to_sync >= scene.to_sync)
                || self.core.would_refuse(NOW, id, &request, SOON).is_err()
            {
                continue;
            }
            all.push(Action::Submit(id, request, Time::NEVER));
            if scene.deadlines && Scene::may_wait(request.verb()) {
                all.push(Action::Submit(id, request, SOON));
            }
        }
    }

    /// Every channel that events may be delivered on.
    fn homes(&self) -> Vec<ChannelKey> {
        let mut homes = self.around.channels.clone();
        for home in self.around.accounts.iter().filter_map(|account| self.core.home(account.id)) {
            if !homes.contains(&home) {
                homes.push(home);
            }
        }
        homes
    }

    /// Takes a step; false if there was nothing to do.
    pub(super) fn step(&mut self, scene: &Scene, seen: &Seen, action: Action) -> Result<bool, Law> {
        match action {
            Action::Create => self.create(scene)?,
            Action::Submit(id, request, deadline) => self.submit(seen, id, request, deadline)?,
            Action::Deliver(channel) => return self.deliver(seen, channel),
            Action::Ack(id) => self.ack(id)?,
            Action::Call { fails } => {
                if !self.call(seen, fails)? {
                    return Ok(false);
                }
                if !scene.slow_calls {
                    self.answer(seen)?;
                }
            }
            Action::Answer => self.answer(seen)?,
            Action::Read => return self.read(seen),
            Action::Happen(id, kind) => self.happen(scene, seen, id, kind)?,
            Action::Expire => self.core.handle_timeout(SOON),
        }
        self.look(seen);
        Ok(true)
    }

    fn create(&mut self, scene: &Scene) -> Result<(), Law> {
        let role = scene.roles[self.around.created];
        let id = self.core.create_id(Some(self.around.channels[0]), role.port_space()).expect("there is room");
        let mut account = Account::new(id, role, true);
        account.begin(Asked::Create);
        self.around.accounts.push(account);
        self.around.created += 1;
        Ok(())
    }

    fn submit(&mut self, seen: &Seen, id: IdKey, request: Request<'static>, deadline: Time) -> Result<(), Law> {
        let requests = self.account(id)?.undelivered();
        let moving = self.account(id)?.is_open(Asked::Migrate);
        let queued = self.queued().len();
        self.core.submit(NOW, id, request, deadline).expect("it would not be refused");
        let listens = self.account(id)?.role == Role::Listener && requests > 0;
        let asked = match request {
            Request::GetRequest | Request::AttachQp | Request::DetachQp => return Ok(()),
            Request::Migrate { to } => {
                self.around.to_sync += u8::from(to.is_none());
                // That of a listener is the core's own business.
                if !self.core.waits_for_acks(id, Verb::Migrate) && self.queued().len() == queued {
                    seen.note_if(listens, Witness::ListenerMovedWithRequests);
                    return Ok(());
                }
                Asked::Migrate
            }
            Request::Destroy => {
                seen.note_if(listens, Witness::RequestsDiscarded);
                seen.note_if(moving, Witness::DestroyOvertookMove);
                Asked::Destroy
            }
            _ => Asked::Call,
        };
        self.account(id)?.begin(asked);
        Ok(())
    }

    /// The calls that the driver has not taken.
    fn queued(&self) -> Vec<Call> {
        let mut core = self.core.clone();
        core::iter::from_fn(|| core.poll_call()).map(|(_, call)| call).collect()
    }

    /// The driver makes the next call.
    fn call(&mut self, seen: &Seen, fails: bool) -> Result<bool, Law> {
        let Some((token, call)) = self.core.poll_call() else { return Ok(false) };
        let account = call.id().and_then(|id| self.around.accounts.iter().find(|account| account.id == id));
        if let Call::Migrate { id, to, .. } = call {
            seen.note_if(self.around.device.unread_of(id) > 0 && !fails, Witness::MovedWithUnread);
            seen.note_if(
                account.is_some_and(|account| account.undelivered() > 0) && self.core.home(id) != Some(to) && !fails,
                Witness::MovedWithUndelivered,
            );
        }
        if matches!(call, Call::Migrate { .. } | Call::Destroy { .. }) && account.is_some_and(|it| it.owed > 0) {
            return Err(Law::CallsWhileAcksAreOwed);
        }
        // A channel that cannot be closed leaks, and so does a new id of which nobody knows; that is told as a fault.
        let must_succeed =
            matches!(call, Call::CloseChannel { .. }) || matches!(call, Call::Destroy { .. } if account.is_none_or(|it| !it.known));
        if fails && must_succeed {
            return Ok(false);
        }
        let outcome = self.around.device.call(&call, fails.then_some(ERRNO))?;
        self.around.under_way = Some(UnderWay { token, call, outcome });
        Ok(true)
    }

    fn answer(&mut self, seen: &Seen) -> Result<(), Law> {
        let Some(UnderWay { token, call, outcome }) = self.around.under_way.take() else { return Ok(()) };
        let failed = outcome.is_err();
        seen.note_if(failed && matches!(call, Call::Migrate { .. }), Witness::NotMoved);
        seen.note_if(failed && matches!(call, Call::Destroy { .. }), Witness::NotDestroyed);
        let told = self.core.handle_outcome(token, outcome);
        if let (true, Call::Destroy { id }) = (failed, call) {
            self.account(id)?.lives_on();
        }
        match told {
            Ok(Some(Ended { about: About::Id(id), .. })) => {
                let gone = self.core.state(id).is_none();
                let account = self.account(id)?;
                account.end(account.asked_by(&call), gone)?;
                self.forget_if_gone(id)
            }
            Ok(_) => Ok(()),
            Err(Fault::Leak { .. }) if failed => Ok(()),
            Err(_) => Err(Law::Faults),
        }
    }

    /// The driver reads the next channel: steps 4 and 5 of the contract.
    fn read(&mut self, seen: &Seen) -> Result<bool, Law> {
        let Some(channel) = self.core.poll_readable() else { return Ok(false) };
        let Some(child) = self.core.wants_event(channel) else {
            seen.note(Witness::NoRoom);
            self.core.wait_for_room(channel);
            return Ok(true);
        };
        if let Some(raw) = self.around.device.fetch(channel, child)? {
            let line = self.core.line(raw.id);
            match self.core.handle_event(channel, raw) {
                Ok(Admission::Known) => {
                    seen.note_if(line != Some(channel), Witness::ArrivedByEvent);
                    seen.note_if(raw.kind == CmEvent::DeviceRemoval, Witness::Removed);
                    self.account(raw.id)?.expect(raw.status);
                }
                Ok(Admission::Child(child)) => {
                    self.account(raw.listener.unwrap_or(child))?.expect(raw.status);
                    self.around.accounts.push(Account::new(child, Role::Child, false));
                }
                Ok(Admission::Late | Admission::Stray) => {
                    seen.note(if raw.listener.is_some() { Witness::LateRequest } else { Witness::LateEvent });
                }
                Err(_) => return Err(Law::Faults),
            }
            self.core.handle_readable(channel);
        }
        self.look(seen);
        Ok(true)
    }

    fn happen(&mut self, scene: &Scene, seen: &Seen, id: IdKey, kind: CmEvent) -> Result<(), Law> {
        let _ = seen;
        let happenings = self.around.device.happenings(id, scene.removal);
        let next = happenings.iter().find(|(other, _)| *other == kind).map_or(Kernel::Over, |&(_, next)| next);
        self.around.children += u8::from(kind == CmEvent::ConnectRequest);
        self.next_tag += 1;
        let woken = self.around.device.report(id, kind, next, self.next_tag)?;
        self.core.handle_readable(woken);
        Ok(())
    }

    /// The application takes the next event of a channel.
    fn deliver(&mut self, seen: &Seen, channel: ChannelKey) -> Result<bool, Law> {
        let Some(event) = self.core.poll_event(channel) else { return Ok(false) };
        let owner = event.listener.unwrap_or(event.id);
        if self.core.home(owner).is_some_and(|home| home != channel) {
            return Err(Law::WrongChannel);
        }
        self.hear(seen, owner, &event)?;
        if let Ok(account) = self.account(event.id) {
            account.known = true;
        }
        if event.receipt.is_some() {
            self.account(owner)?.owed += 1;
        }
        if let EventKind::Destroyed = event.kind {
            self.forget_if_gone(owner)?;
        }
        self.look(seen);
        Ok(true)
    }

    fn hear(&mut self, seen: &Seen, owner: IdKey, event: &Event) -> Result<(), Law> {
        let timed_out = event.status == -Errno::ETIMEDOUT.0;
        let account = self.account(owner)?;
        match event.kind {
            EventKind::Migrated => {
                seen.note(if timed_out { Witness::MoveTimedOut } else { Witness::MovedAfterAcks });
                account.end(Asked::Migrate, false)
            }
            EventKind::Destroyed => {
                seen.note(if timed_out { Witness::DestroyTimedOut } else { Witness::DestroyedAfterAcks });
                account.end(Asked::Destroy, false)
            }
            EventKind::DeadlinePassed(_) => {
                seen.note(Witness::DeadlinePassed);
                Ok(())
            }
            EventKind::Left => Err(Law::EndsTwice),
            EventKind::Cm(kind) => {
                seen.note_if(kind == CmEvent::ConnectRequest, Witness::ChildDelivered);
                account.deliver(event.status)
            }
        }
    }

    fn ack(&mut self, id: IdKey) -> Result<(), Law> {
        self.account(id)?.owed -= 1;
        self.core.ack(mint::receipt(id)).map_err(|_| Law::Order)
    }

    /// What the application sees without being told, and what it forgets.
    fn look(&mut self, seen: &Seen) {
        for at in 0..self.around.accounts.len() {
            let id = self.around.accounts[at].id;
            seen.note_if(self.core.state(id) == Some(State::Connected), Witness::Established);
            if let Some(event) = self.core.sync_event(id) {
                seen.note(Witness::SyncEnded);
                self.around.accounts[at].read(event.status);
                if let (Some(_), Ok(child)) = (event.listener, self.account(event.id)) {
                    child.known = true;
                }
            }
        }
        // The id of a request that nobody heard of goes without a word.
        let core = &self.core;
        self.around.accounts.retain(|it| it.known || core.state(it.id).is_some());
    }

    fn forget_if_gone(&mut self, id: IdKey) -> Result<(), Law> {
        if self.core.state(id).is_none() {
            if self.account(id)?.has_open() {
                return Err(Law::NeverEnds);
            }
            self.around.accounts.retain(|account| account.id != id);
        }
        Ok(())
    }

    fn account(&mut self, id: IdKey) -> Result<&mut Account, Law> {
        self.around.accounts.iter_mut().find(|account| account.id == id).ok_or(Law::Order)
    }

    fn make_all(&mut self, seen: &Seen) -> Result<(), Law> {
        self.answer(seen)?;
        while self.call(seen, false)? {
            self.answer(seen)?;
        }
        Ok(())
    }

    /// The driver works, the application takes events, until there is nothing to do. The device says nothing new.
    fn come_to_rest(&mut self, seen: &Seen) -> Result<(), Law> {
        for _ in 0..200 {
            self.make_all(seen)?;
            let mut worked = self.read(seen)?;
            for home in self.homes() {
                worked |= self.deliver(seen, home)?;
            }
            self.look(seen);
            if !worked && !self.core.has_work() {
                return Ok(());
            }
        }
        Err(Law::NeverEnds)
    }

    /// From here everything ends: what was reported is delivered, and when all is acked and destroyed, in
    /// either order, nothing is left.
    pub(super) fn end(mut self) -> Result<(), Law> {
        let seen = Seen::default();
        self.come_to_rest(&seen)?;
        if self.around.device.unread() > 0 {
            return Err(Law::LosesWakeUp);
        }
        if self.around.accounts.iter().any(Account::misses_event) {
            return Err(Law::LosesEvent);
        }
        let mut other = self.clone();
        self.ack_all()?;
        self.come_to_rest(&seen)?;
        self.destroy_all(&seen)?;
        self.be_gone(&seen)?;
        other.destroy_all(&seen)?;
        other.ack_all()?;
        other.be_gone(&seen)
    }

    /// All is acked and destroyed.
    fn be_gone(mut self, seen: &Seen) -> Result<(), Law> {
        self.come_to_rest(seen)?;
        if self.around.accounts.iter().any(Account::has_open) {
            return Err(Law::NeverEnds);
        }
        for channel in core::mem::take(&mut self.around.channels) {
            self.core.close_channel(channel).map_err(|_| Law::Leaks)?;
        }
        self.make_all(seen)?;
        self.core.check();
        let core = &self.core;
        let empty = (core.ids(), core.channels(), core.groups()) == (0, 0, 0) && core.poll_timeout().is_none();
        if empty && !core.has_work() && self.around.accounts.is_empty() && self.around.device.is_empty() {
            Ok(())
        } else {
            Err(Law::Leaks)
        }
    }

    fn ack_all(&mut self) -> Result<(), Law> {
        for at in 0..self.around.accounts.len() {
            while self.around.accounts[at].owed > 0 {
                self.ack(self.around.accounts[at].id)?;
            }
        }
        Ok(())
    }

    fn destroy_all(&mut self, seen: &Seen) -> Result<(), Law> {
        for id in self.around.accounts.iter().map(|account| account.id).collect::<Vec<_>>() {
            let state = self.core.state(id);
            if state.is_some_and(|state| state != State::Destroying) {
                self.core.would_refuse(NOW, id, &Request::Destroy, Time::NEVER).map_err(|_| Law::RefusesDestroy)?;
                self.submit(seen, id, Request::Destroy, Time::NEVER)?;
            }
        }
        Ok(())
    }

    /// How many calls about an id are queued or under way, at most.
    pub(super) fn calls_of_one_id(&self) -> usize {
        let calls = self.around.under_way.iter().map(|it| it.call).chain(self.queued());
        let about: Vec<_> = calls.filter_map(|call| call.id()).collect();
        about.iter().map(|id| about.iter().filter(|&other| other == id).count()).max().unwrap_or(0)
    }

    /// Whether a request that is refused changes nothing.
    pub(super) fn refusals_change_nothing(&self, scene: &Scene, seen: &Seen) -> bool {
        let mut core = self.core.clone();
        for account in &self.around.accounts {
            for request in scene.requests(&self.core, account.id, account.role, &self.around.channels) {
                if let Err(refused) = self.core.would_refuse(NOW, account.id, &request, SOON) {
                    seen.note(Witness::Refused);
                    if core.submit(NOW, account.id, request, SOON) != Err(refused) {
                        return false;
                    }
                }
            }
        }
        core == self.core
    }
}
