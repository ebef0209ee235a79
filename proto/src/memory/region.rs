//! One memory region.

use crate::errno::Errno;
use crate::memory::outcome::survives;
use crate::memory::table::{self, Cell, Input};
use crate::memory::{
    Access, Buffer, Change, Code, Failure, Fault, MrState, Outcome, Provider, Refused, Reply, Step, Subject, Valid,
    Verb, Why, valid_after,
};

/// The use of a PD by one registration. A clone is one more use.
pub trait Pd: Clone {
    /// Whether both are of the same device.
    fn same_device(&self, other: &Self) -> bool;
}

/// The keys of a registration. A re-registration may change them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keys {
    /// For work requests of this side.
    pub lkey: u32,
    /// For RDMA reads and writes of the peer.
    pub rkey: u32,
}

/// Whether work requests name the MR that have been posted and have not completed, on a QP that is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// None.
    Quiet,
    /// Some. They pin it.
    InFlight,
}

/// How to re-register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// What to do where the provider cannot.
    pub fallback: Fallback,
    /// What is known of the provider.
    pub provider: Provider,
}

/// What to do where the provider has no re-registration (rxe, siw, efa, bnxt_re, mana) or not this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// Nothing: it fails with EOPNOTSUPP and the old registration is valid.
    #[default]
    None,
    /// Register what was asked for, then deregister the old one. The keys change. If a step fails, the new one is undone
    /// and the old one stays.
    Anew,
}

/// How the present registration came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// By `ibv_rereg_mr`.
    InPlace,
    /// By `ibv_reg_mr`: the first one, or the fallback.
    Anew,
}

/// A device call to be made. Report what it returned to [`Region::handle_outcome`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call<'a, P, B, H> {
    /// `ibv_reg_mr`.
    Register {
        /// The PD.
        pd: &'a P,
        /// The memory.
        buffer: &'a B,
        /// What may be done with it.
        access: Access,
    },
    /// `ibv_rereg_mr`.
    Reregister {
        /// The registration.
        handle: &'a H,
        /// What is to be different.
        change: &'a Change<P, B>,
    },
    /// `ibv_dereg_mr`.
    Deregister {
        /// The registration, which is gone if the call succeeds.
        handle: &'a H,
    },
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Ended<B> {
    /// It is registered, with these keys.
    Registered(Keys),
    /// It could not be registered; the buffer is the caller's again.
    NotRegistered(Errno, B),
    /// The re-registration has ended, one way or the other.
    Reregistered(Settled<B>),
    /// It is deregistered, and the device refers to its buffers no more.
    Deregistered(Returned<B>),
    /// It could not be deregistered. It can be tried again.
    NotDeregistered(Failure),
}

/// What came of a re-registration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Settled<B> {
    /// How it went, or why not. [`Failure::valid`] says what can be used; after `ERR_DO_FORK_OLD` that is the new
    /// registration.
    pub result: Result<Way, Failure>,
    /// The buffer that the device does not refer to: the old one if the new registration is valid, the new one if the old is.
    /// `None` if there was only one, and if neither is valid: then the region keeps both until it is deregistered.
    pub buffer: Option<B>,
}

/// The buffers of a region that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Returned<B> {
    /// Its buffer.
    pub buffer: B,
    /// The one that it was to have had, if a re-registration failed and left neither registration valid.
    pub other: Option<B>,
}

/// One registration at the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Registration<P, H> {
    handle: H,
    keys: Keys,
    pd: P,
    access: Access,
}

/// The life of an MR, and what it keeps alive: the use `P` of a PD, the buffer `B`, and the device's handle `H`.
///
/// One request is under way at a time; [`Region::call`] says which call is to be made. The region owns what the device may
/// refer to: dropping one that is not gone must not free the buffer, which is why a buffer type should leak rather than
/// free itself when it is dropped in here. See [the module](crate::memory) for an example.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region<P, B, H> {
    state: MrState,
    removed: bool,
    policy: Policy,
    way: Way,
    /// The registration that is valid, or was before things went wrong.
    old: Option<Registration<P, H>>,
    buffer: Option<B>,
    /// What was asked for and has not come to be.
    change: Change<P, B>,
    /// The fallback's registration, while the old one is there too.
    new: Option<Registration<P, H>>,
    /// Why a fallback is being undone.
    undone_for: Option<Errno>,
}

impl<P: Pd, B: Buffer, H> Region<P, B, H> {
    /// A region whose `ibv_reg_mr` is to be made.
    ///
    /// # Errors
    /// [`Why::Empty`], [`Why::RemoteWithoutLocalWrite`]; the buffer comes back.
    pub fn register(pd: P, buffer: B, access: Access) -> Result<Self, (B, Refused)> {
        let empty = if buffer.is_empty() { Err(Why::Empty) } else { Ok(()) };
        if let Err(why) = empty.and_then(|()| access.check()) {
            return Err((buffer, Refused { request: Verb::Register, subject: Subject::Mr(None), why }));
        }
        Ok(Region {
            state: MrState::Registering,
            removed: false,
            policy: Policy::default(),
            way: Way::Anew,
            old: None,
            buffer: None,
            change: Change { buffer: Some(buffer), pd: Some(pd), access: Some(access) },
            new: None,
            undone_for: None,
        })
    }

    /// To be re-registered: the call is to be made.
    ///
    /// # Errors
    /// [`Why::NothingToChange`], [`Why::Empty`], [`Why::OtherDevice`], [`Why::RemoteWithoutLocalWrite`]; [`Why::InFlight`] if
    /// there is traffic; and what the [table](table::MR) says. The change comes back.
    pub fn reregister(
        &mut self,
        change: Change<P, B>,
        policy: Policy,
        traffic: Traffic,
    ) -> Result<(), (Change<P, B>, Refused)> {
        let next = self
            .asked(Input::Reregister)
            .and_then(|next| self.old.as_ref().map_or(Ok(()), |old| change.check(&old.pd)).map(|()| next))
            .and_then(|next| self.quiet(traffic).map(|()| next));
        match next {
            Ok(next) => {
                self.change = change;
                self.policy = policy;
                self.set_state(next);
                Ok(())
            }
            Err(why) => Err((change, self.refused(Verb::Reregister, why))),
        }
    }

    /// To be deregistered: the call is to be made.
    ///
    /// # Errors
    /// [`Why::InFlight`] if there is traffic, and what the [table](table::MR) says.
    pub fn deregister(&mut self, traffic: Traffic) -> Result<(), Refused> {
        let next = self.asked(Input::Deregister).and_then(|next| self.quiet(traffic).map(|()| next));
        let next = next.map_err(|why| self.refused(Verb::Deregister, why))?;
        self.set_state(next);
        Ok(())
    }

    /// The call to be made now. It stays the same until its outcome is reported.
    #[must_use]
    pub fn call(&self) -> Option<Call<'_, P, B, H>> {
        match self.state {
            MrState::Registering | MrState::Replacing => {
                let pd = self.change.pd.as_ref().or(self.old.as_ref().map(|old| &old.pd))?;
                let buffer = self.change.buffer.as_ref().or(self.buffer.as_ref())?;
                Some(Call::Register { pd, buffer, access: self.wanted_access() })
            }
            MrState::Changing => Some(Call::Reregister { handle: &self.old.as_ref()?.handle, change: &self.change }),
            MrState::Retiring | MrState::Deregistering => Some(Call::Deregister { handle: &self.old.as_ref()?.handle }),
            MrState::Undoing | MrState::Discarding => {
                Some(Call::Deregister { handle: &self.new.as_ref().or(self.old.as_ref())?.handle })
            }
            MrState::Registered | MrState::Unusable | MrState::Gone => None,
        }
    }

    /// Makes the calls, one after the other, until the request has ended.
    ///
    /// # Errors
    /// As [`Region::handle_outcome`]; then nothing has changed since the last call.
    pub fn run(&mut self, mut device: impl FnMut(Call<'_, P, B, H>) -> Outcome<H>) -> Result<Option<Ended<B>>, Fault> {
        while let Some(call) = self.call() {
            let outcome = device(call);
            if let Some(ended) = self.handle_outcome(outcome)? {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    /// What the call returned. Says what came of the request, if it has ended; otherwise there is another call.
    ///
    /// # Errors
    /// If no such call is under way.
    pub fn handle_outcome(&mut self, outcome: Outcome<H>) -> Result<Option<Ended<B>>, Fault> {
        match outcome {
            Outcome::Registered(Ok((handle, keys))) => {
                let from = self.told(Input::Made, Verb::Register)?;
                Ok(self.made(from, handle, keys))
            }
            Outcome::Registered(Err(errno)) => {
                let from = self.told(Input::NotMade, Verb::Register)?;
                Ok(self.not_made(from, errno))
            }
            Outcome::Reregistered(reply) => self.replied(reply),
            Outcome::Deregistered(Ok(())) => {
                let two = self.state == MrState::Discarding && self.new.is_some();
                let from = self.told(if two { Input::OneEnded } else { Input::Ended }, Verb::Deregister)?;
                Ok(self.ended(from))
            }
            Outcome::Deregistered(Err(errno)) => {
                let input = if survives(errno) { Input::Kept } else { Input::Lost };
                let from = self.told(input, Verb::Deregister)?;
                Ok(self.not_ended(from, errno))
            }
        }
    }

    /// Its device is gone: only a deregistration is legal from now on. A call that is under way still has its outcome.
    pub fn handle_removal(&mut self) {
        self.removed = true;
        if let Cell::Go(state) = table::MR[self.state.index()][Input::Removal.index()] {
            self.set_state(state);
        }
    }

    /// Where it is in its life.
    #[must_use]
    pub const fn state(&self) -> MrState {
        self.state
    }

    /// How the present registration came to be.
    #[must_use]
    pub const fn way(&self) -> Way {
        self.way
    }

    /// The keys of the valid registration; `None` if none is.
    #[must_use]
    pub fn keys(&self) -> Option<Keys> {
        self.valid().map(|registration| registration.keys)
    }

    /// The PD of the valid registration; `None` if none is.
    #[must_use]
    pub fn pd(&self) -> Option<&P> {
        self.valid().map(|registration| &registration.pd)
    }

    /// The rights of the valid registration; `None` if none is valid.
    #[must_use]
    pub fn access(&self) -> Option<Access> {
        self.valid().map(|registration| registration.access)
    }

    /// The buffer of the valid registration. Where none is valid, the one that was the last to be.
    #[must_use]
    pub const fn buffer(&self) -> Option<&B> {
        self.buffer.as_ref()
    }

    fn valid(&self) -> Option<&Registration<P, H>> {
        match self.state {
            // While a call is under way that may take the registration away, nothing is said about it.
            MrState::Registered | MrState::Replacing => self.old.as_ref(),
            MrState::Registering
            | MrState::Changing
            | MrState::Retiring
            | MrState::Undoing
            | MrState::Unusable
            | MrState::Deregistering
            | MrState::Discarding
            | MrState::Gone => None,
        }
    }

    fn wanted_access(&self) -> Access {
        let old = self.old.as_ref().map(|old| old.access);
        self.change.access.or(old).unwrap_or(Access::empty())
    }

    /// `ibv_reg_mr` succeeded, in state `from`.
    fn made(&mut self, from: MrState, handle: H, keys: Keys) -> Option<Ended<B>> {
        let access = self.wanted_access();
        let pd = self.change.pd.take().or_else(|| self.old.as_ref().map(|old| old.pd.clone()))?;
        let registration = Registration { handle, keys, pd, access };
        if from == MrState::Replacing {
            self.new = Some(registration);
            return None;
        }
        self.old = Some(registration);
        self.take_over();
        Some(Ended::Registered(keys))
    }

    fn not_made(&mut self, from: MrState, errno: Errno) -> Option<Ended<B>> {
        let buffer = self.drop_change();
        if from == MrState::Replacing {
            let failure = Failure { step: Step::RegisterAnew, errno, valid: Valid::Old };
            return Some(Ended::Reregistered(Settled { result: Err(failure), buffer }));
        }
        Some(Ended::NotRegistered(errno, buffer?))
    }

    /// `ibv_rereg_mr` returned.
    fn replied(&mut self, reply: Reply) -> Result<Option<Ended<B>>, Fault> {
        let code = Code::from_raw(reply.code);
        let valid = valid_after(code, reply.errno, self.policy.provider);
        let unsupported = code == Code::Cmd && reply.errno == Errno::EOPNOTSUPP;
        let input = match valid {
            Valid::Old if unsupported && self.policy.fallback == Fallback::Anew => Input::Unsupported,
            Valid::Old => Input::Old,
            Valid::New => Input::New,
            Valid::Neither => Input::Neither,
        };
        self.told(input, Verb::Reregister)?;
        if input == Input::Unsupported {
            return Ok(None);
        }
        let buffer = match valid {
            Valid::Old => self.drop_change(),
            Valid::New => {
                self.way = Way::InPlace;
                self.apply(reply.keys)
            }
            // Which of the two PDs and buffers the device refers to is not known: both are kept.
            Valid::Neither => None,
        };
        let result = match code {
            Code::Done => Ok(Way::InPlace),
            Code::Input
            | Code::DontForkNew
            | Code::DoForkOld
            | Code::Cmd
            | Code::CmdAndDoForkNew
            | Code::Unknown(_) => Err(Failure { step: Step::Reregister(code), errno: reply.errno, valid }),
        };
        Ok(Some(Ended::Reregistered(Settled { result, buffer })))
    }

    /// `ibv_dereg_mr` succeeded, in state `from`.
    fn ended(&mut self, from: MrState) -> Option<Ended<B>> {
        match from {
            MrState::Retiring => {
                self.old = self.new.take();
                self.way = Way::Anew;
                let buffer = self.take_over();
                Some(Ended::Reregistered(Settled { result: Ok(Way::Anew), buffer }))
            }
            MrState::Undoing => {
                self.new = None;
                let errno = self.undone_for.take()?;
                let failure = Failure { step: Step::DeregisterOld, errno, valid: Valid::Old };
                let buffer = self.drop_change();
                Some(Ended::Reregistered(Settled { result: Err(failure), buffer }))
            }
            // The first of two; the other one is next.
            MrState::Discarding if self.new.take().is_some() => None,
            MrState::Deregistering | MrState::Discarding => {
                self.old = None;
                let other = self.drop_change();
                Some(Ended::Deregistered(Returned { buffer: self.buffer.take()?, other }))
            }
            MrState::Registering
            | MrState::Registered
            | MrState::Changing
            | MrState::Replacing
            | MrState::Unusable
            | MrState::Gone => None,
        }
    }

    fn not_ended(&mut self, from: MrState, errno: Errno) -> Option<Ended<B>> {
        let valid = if self.state == MrState::Registered { Valid::Old } else { Valid::Neither };
        let first = self.undone_for.take();
        match (from, self.state) {
            (MrState::Retiring, MrState::Undoing) => {
                self.undone_for = Some(errno);
                None
            }
            (MrState::Retiring | MrState::Undoing, _) => {
                let failure = Failure { step: Step::DeregisterOld, errno: first.unwrap_or(errno), valid };
                Some(Ended::Reregistered(Settled { result: Err(failure), buffer: None }))
            }
            (_, _) => Some(Ended::NotDeregistered(Failure { step: Step::Deregister, errno, valid })),
        }
    }

    /// The new registration is the old one, changed: as stage 7 of `ibv_rereg_mr`.
    fn apply(&mut self, keys: Keys) -> Option<B> {
        if let Some(old) = &mut self.old {
            old.keys = keys;
            if let Some(pd) = self.change.pd.take() {
                old.pd = pd;
            }
            if let Some(access) = self.change.access {
                old.access = access;
            }
        }
        self.take_over()
    }

    /// The buffer that was asked for is the region's now; the one before it is let go.
    fn take_over(&mut self) -> Option<B> {
        let wanted = self.drop_change()?;
        self.buffer.replace(wanted)
    }

    /// What was asked for is given up, or has come to be: the use of its PD ends here, its buffer is returned.
    fn drop_change(&mut self) -> Option<B> {
        core::mem::take(&mut self.change).buffer
    }

    /// Traffic pins an MR, as long as there is a device.
    const fn quiet(&self, traffic: Traffic) -> Result<(), Why> {
        match traffic {
            Traffic::InFlight if !self.removed => Err(Why::InFlight),
            Traffic::InFlight | Traffic::Quiet => Ok(()),
        }
    }

    fn asked(&self, input: Input) -> Result<MrState, Why> {
        match table::MR[self.state.index()][input.index()] {
            Cell::Go(next) => Ok(next),
            Cell::Refuse(_) if self.removed && self.state == MrState::Unusable => Err(Why::DeviceGone),
            Cell::Refuse(why) => Err(why),
            Cell::Fault => Err(Why::Busy),
        }
    }

    /// Goes where the table says and returns where it was.
    fn told(&mut self, input: Input, outcome: Verb) -> Result<MrState, Fault> {
        let from = self.state;
        match table::MR[from.index()][input.index()] {
            Cell::Go(next) => {
                self.set_state(next);
                Ok(from)
            }
            Cell::Refuse(_) | Cell::Fault => Err(Fault { outcome, subject: Subject::Mr(Some(from)) }),
        }
    }

    fn refused(&self, request: Verb, why: Why) -> Refused {
        Refused { request, subject: Subject::Mr(Some(self.state)), why }
    }

    /// The one place where a region's state changes.
    fn set_state(&mut self, state: MrState) {
        self.state = if self.removed && state == MrState::Registered { MrState::Unusable } else { state };
    }
}
