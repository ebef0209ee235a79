//! One state: the core, the device, the application's accounts; and the effects of each step.

use core::hash::{Hash, Hasher};

use cmid_model::one_host::{Happening, OneHost};
use cmid_proto::{Acks, ChannelKey, Core, IdKey, Request, RequestKind, State, Time};

use super::account::{Account, OpenRequest};
use super::invariant::Invariant;
use super::scene::Scene;
use super::view;
use super::witness::{Seen, Witness};

/// It is always this time; a core counts only how far off a deadline is.
pub(super) const NOW: Time = Time::ZERO;
/// The deadline of all requests that have one.
pub(super) const SOON: Time = Time(1_000_000_000);

/// No step has more calls that may fail: a listen opens a channel, migrates the id to it, and listens.
const CALLS_MAX: u8 = 3;

/// A step from one state to another, with its calls and those that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// The step.
    pub step: Step,
    /// The number of the call that fails, from 0.
    pub fails: Option<u8>,
}

/// A step of the application, the driver or the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The application creates the next id, on the first channel.
    Create,
    /// It submits a request, with the deadline [`Time::NEVER`] or soon.
    Submit(IdKey, Request<'static>, Time),
    /// It takes the next event of a channel.
    Deliver(ChannelKey),
    /// It acks an event of an id.
    Ack(IdKey),
    /// The driver destroys the id of a request that was not delivered, or reads the next readable channel.
    Read,
    /// Something happens to an id of the device.
    Happen(IdKey, Happening),
    /// All deadlines pass.
    Expire,
}

impl Step {
    /// Whether calls that may fail are part of it or follow from it.
    const fn calls(self) -> bool {
        matches!(self, Step::Create | Step::Submit(..) | Step::Ack(_) | Step::Read)
    }
}

/// A state of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    pub(super) core: Core,
    pub(super) environment: Environment,
    pub(super) next_tag: i32,
}

/// The environment of the core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Environment {
    pub(super) device: OneHost,
    pub(super) accounts: Vec<Account>,
    /// The channels that the application has opened.
    pub(super) channels: Vec<ChannelKey>,
    pub(super) created: usize,
    pub(super) private_channels: u8,
    pub(super) children: u8,
    /// During an action: how many more calls succeed before one fails.
    pub(super) fails: Option<u8>,
    pub(super) broken: Option<Invariant>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, into: &mut H) {
        view::hash(&self.core, &self.environment, into);
    }
}

impl World {
    /// The channels are open, and nothing else has happened.
    pub(super) fn new(scene: &Scene) -> Self {
        let environment = Environment::default();
        let mut world = World { core: Core::new(scene.limits), environment, next_tag: view::TAGS.start };
        for &acks in scene.channels {
            world.open(acks);
        }
        world
    }

    fn open(&mut self, acks: Acks) {
        let (channel, begun) = self.core.open_channel(acks).expect("the limits leave room for the channels");
        let result = self.environment.make(&Seen::default(), None, begun);
        result.expect("nothing goes wrong").expect("no call fails");
        self.environment.channels.push(channel);
    }

    /// The possible next actions, and some that turn out to have fewer calls.
    pub(super) fn actions(&self, scene: &Scene, all: &mut Vec<Action>) {
        for step in self.steps(scene) {
            all.push(Action { step, fails: None });
            if scene.failures && step.calls() {
                all.extend((0..CALLS_MAX).map(|at| Action { step, fails: Some(at) }));
            }
        }
    }

    fn steps(&self, scene: &Scene) -> Vec<Step> {
        let mut all = Vec::new();
        let environment = &self.environment;
        let in_all: usize = environment.accounts.iter().map(|account| self.events_of(account)).sum();
        if environment.created < scene.roles.len() {
            all.push(Step::Create);
        }
        for account in &environment.accounts {
            let id = account.id;
            if account.known && self.core.state(id).is_some() {
                self.requests(scene, account, &mut all);
            }
            if account.owed > 0 {
                all.push(Step::Ack(id));
            }
            if self.events_of(account) < scene.events && in_all < scene.events_in_all {
                let happenings = environment.device.possible(id).into_iter();
                let is_in = |what: &Happening| match what {
                    Happening::Request => environment.children < scene.children,
                    Happening::Removal => scene.removal,
                    Happening::AddrChanges => !scene.removal && environment.device.is_bound(id),
                    // A peer that is silent is as good as one that refuses.
                    Happening::Silence | Happening::NeighbourMoves => false,
                    Happening::Answer
                    | Happening::Refusal
                    | Happening::PeerDisconnects
                    | Happening::TimeWaitEnds
                    | Happening::Joined
                    | Happening::GroupLost => true,
                };
                all.extend(happenings.filter(is_in).map(|what| Step::Happen(id, what)));
            }
        }
        all.extend(self.homes().into_iter().map(Step::Deliver));
        if self.core.has_work() {
            all.push(Step::Read);
        }
        if self.core.poll_timeout().is_some() {
            all.push(Step::Expire);
        }
        all
    }

    /// The events of an id that are unread, undelivered, or not acked.
    fn events_of(&self, account: &Account) -> usize {
        self.environment.device.unread_of(account.id) + account.undelivered() + usize::from(account.owed)
    }

    fn requests(&self, scene: &Scene, account: &Account, all: &mut Vec<Step>) {
        let id = account.id;
        for request in scene.requests(&self.core, id, account.role, &self.environment.channels) {
            let is_bounded_out =
                Scene::opens_channel(&request) && self.environment.private_channels >= scene.private_channels;
            if is_bounded_out
                || repeats_open_request(account, &request)
                || self.core.would_refuse(NOW, id, &request, SOON).is_err()
            {
                continue;
            }
            all.push(Step::Submit(id, request, Time::NEVER));
            if scene.deadlines && Scene::may_wait(request.request_kind()) {
                all.push(Step::Submit(id, request, SOON));
            }
        }
    }

    /// Every channel that events may be delivered on.
    pub(super) fn homes(&self) -> Vec<ChannelKey> {
        let mut homes = self.environment.channels.clone();
        for home in self.environment.accounts.iter().filter_map(|account| self.core.channel(account.id)) {
            if !homes.contains(&home) {
                homes.push(home);
            }
        }
        homes
    }

    /// Takes a step with its calls and those that follow; false if it has no effect, or fewer calls than the one that
    /// is to fail.
    pub(super) fn act(&mut self, scene: &Scene, seen: &Seen, action: Action) -> Result<bool, Invariant> {
        self.environment.fails = action.fails;
        let has_effect = self.step(scene, seen, action.step)?;
        self.follow(seen)?;
        self.look(seen);
        Ok(has_effect && self.environment.fails.take().is_none())
    }

    fn step(&mut self, scene: &Scene, seen: &Seen, step: Step) -> Result<bool, Invariant> {
        match step {
            Step::Create => self.create(scene, seen)?,
            Step::Submit(id, request, deadline) => self.submit(seen, id, request, deadline)?,
            Step::Deliver(channel) => return self.deliver(seen, channel),
            Step::Ack(id) => self.ack(id)?,
            Step::Read => return self.read(seen),
            Step::Happen(id, what) => self.happen(id, what),
            Step::Expire => self.core.handle_timeout(SOON),
        }
        Ok(true)
    }

    /// Updates the accounts from the observable state of the core, and drops accounts of removed ids.
    pub(super) fn look(&mut self, seen: &Seen) {
        seen.note_if(self.environment.created > 0 && self.core.ids().count() == 0, Witness::Ended);
        for at in 0..self.environment.accounts.len() {
            let id = self.environment.accounts[at].id;
            seen.note_if(self.core.state(id) == Some(State::Connected), Witness::Established);
            if let Some(event) = self.core.sync_event(id) {
                seen.note(Witness::SyncEnded);
                self.environment.accounts[at].read(event.status);
                if let (Some(_), Ok(child)) = (event.listener, self.account(event.id)) {
                    child.known = true;
                }
            }
        }
        // An id is gone without a report if the application never took its request.
        let core = &self.core;
        self.environment.accounts.retain(|it| core.state(it.id).is_some() || (it.known && it.has_open()));
    }

    pub(super) fn forget_if_gone(&mut self, id: IdKey) -> Result<(), Invariant> {
        if self.core.state(id).is_none() {
            if self.account(id)?.has_open() {
                return Err(Invariant::NeverEnds);
            }
            self.environment.accounts.retain(|account| account.id != id);
        }
        Ok(())
    }

    pub(super) fn account(&mut self, id: IdKey) -> Result<&mut Account, Invariant> {
        self.environment.accounts.iter_mut().find(|account| account.id == id).ok_or(Invariant::Order)
    }
}

/// Whether the application repeats an open request. It could repeat without bounds, and the core would keep an event
/// for each.
fn repeats_open_request(account: &Account, request: &Request<'_>) -> bool {
    let request_kind = request.request_kind();
    (request_kind == RequestKind::Migrate && account.is_open(OpenRequest::Migrate))
        || (request_kind == RequestKind::Destroy && account.is_open(OpenRequest::Destroy))
}
