//! One memory region.

mod settle;

use crate::errno::Errno;
use crate::error_with::ErrorWith;
use crate::memory::outcome::survives;
use crate::memory::rules::{self, Cell, Input};
use crate::memory::{
    Access, Buffer, Change, Ended, Keys, MemoryCall, MemoryFault, MemoryOutcome, MemoryReason, MemoryRefused,
    MemoryRequest, MemoryTarget, MrState, Pd, Policy, Traffic, Way,
};

/// One registration at the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Registration<P, H> {
    handle: H,
    keys: Keys,
    pd: P,
    access: Access,
}

/// The state of an MR, and the objects that it keeps alive: the use `P` of a PD, the buffer `B`, and the device's
/// handle `H`.
///
/// At most one request is under way. [`Region::call`] returns the call to make. The region owns everything that the
/// device may refer to. If a region is dropped while it is registered, its buffer must not be freed: a buffer type
/// should leak its memory when it is dropped inside a region. See [the module](crate::memory) for an example.
#[doc(alias = "ibv_mr")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region<P, B, H> {
    state: MrState,
    removed: bool,
    policy: Policy,
    way: Way,
    /// The valid registration. If none is valid, the last valid one.
    old: Option<Registration<P, H>>,
    buffer: Option<B>,
    /// The part of the current request that is not in effect yet.
    change: Change<P, B>,
    /// The registration that the fallback made, while the old one exists too.
    new: Option<Registration<P, H>>,
    /// Memory besides `buffer` that the device may access: of a failed re-registration, or what one in place has replaced
    /// while a packet may be copied to it. It is kept until no registration is left.
    in_doubt: Option<B>,
    /// The PD of a failed re-registration, to which the device may count this registration. Its use ends with the
    /// registration.
    pd_in_doubt: Option<P>,
    /// Whether peers may be able to write, whatever the rights are.
    exposed: bool,
    /// While a failed fallback is undone: the errno of its failure.
    undone_for: Option<Errno>,
}

impl<P: Pd, B: Buffer, H> Region<P, B, H> {
    /// Creates a region; its `ibv_reg_mr` is the next call.
    ///
    /// # Errors
    /// [`MemoryReason::Empty`], [`MemoryReason::UnknownRights`], [`MemoryReason::RemoteWithoutLocalWrite`]. The buffer is returned, and the use of the
    /// PD ends.
    pub fn register(pd: P, buffer: B, access: Access) -> Result<Self, ErrorWith<B, MemoryRefused>> {
        let empty = if buffer.is_empty() { Err(MemoryReason::Empty) } else { Ok(()) };
        if let Err(reason) = empty.and_then(|()| access.check()) {
            return Err(ErrorWith::new(buffer, MemoryRefused::register(reason)));
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
            in_doubt: None,
            pd_in_doubt: None,
            exposed: false,
            undone_for: None,
        })
    }

    /// Starts a re-registration; [`Region::call`] returns the call to make.
    ///
    /// # Errors
    /// [`MemoryReason::NothingToChange`], [`MemoryReason::Empty`], [`MemoryReason::OtherDevice`],
    /// [`MemoryReason::UnknownRights`], [`MemoryReason::RemoteWithoutLocalWrite`]; [`MemoryReason::InDoubt`] for new
    /// memory or a new PD; [`MemoryReason::InFlight`] while work requests are in flight, [`MemoryReason::WindowBound`]
    /// while a window may be bound to it; and the refusals of the [table](rules::MR). The change is returned.
    pub fn reregister(
        &mut self,
        change: Change<P, B>,
        policy: Policy,
        traffic: Traffic,
    ) -> Result<(), ErrorWith<Change<P, B>, MemoryRefused>> {
        let next = self
            .request_rule(Input::Reregister)
            .and_then(|next| self.old.as_ref().map_or(Ok(()), |old| change.check(&old.pd)).map(|()| next))
            .and_then(|next| self.sure(&change).map(|()| next))
            .and_then(|next| Self::quiet(traffic).map(|()| next));
        match next {
            Ok(next) => {
                self.change = change;
                self.policy = policy;
                self.set_state(next);
                Ok(())
            }
            Err(reason) => Err(ErrorWith::new(change, self.refused(MemoryRequest::Reregister, reason))),
        }
    }

    /// Starts a deregistration; [`Region::call`] returns the call to make.
    ///
    /// # Errors
    /// [`MemoryReason::InFlight`] while work requests are in flight, even if the device is gone;
    /// [`MemoryReason::WindowBound`] while a window may be bound to it; and the refusals of the [table](rules::MR).
    pub fn deregister(&mut self, traffic: Traffic) -> Result<(), MemoryRefused> {
        let next = self.request_rule(Input::Deregister).and_then(|next| Self::quiet(traffic).map(|()| next));
        let next = next.map_err(|reason| self.refused(MemoryRequest::Deregister, reason))?;
        self.set_state(next);
        Ok(())
    }

    /// Returns the call to make now; the same call until its outcome is reported.
    #[must_use]
    pub fn call(&self) -> Option<MemoryCall<'_, P, B, H>> {
        match self.state {
            MrState::Registering | MrState::Replacing => {
                let pd = self.change.pd.as_ref().or(self.old.as_ref().map(|old| &old.pd))?;
                let buffer = self.change.buffer.as_ref().or(self.buffer.as_ref())?;
                Some(MemoryCall::Register { pd, buffer, access: self.wanted_access() })
            }
            MrState::Changing => {
                Some(MemoryCall::Reregister { handle: &self.old.as_ref()?.handle, change: &self.change })
            }
            MrState::Retiring | MrState::Deregistering => {
                Some(MemoryCall::Deregister { handle: &self.old.as_ref()?.handle })
            }
            MrState::Undoing | MrState::Discarding => {
                Some(MemoryCall::Deregister { handle: &self.new.as_ref().or(self.old.as_ref())?.handle })
            }
            MrState::Registered | MrState::Unusable | MrState::Gone => None,
        }
    }

    /// Makes the calls, one after the other, until the request has ended. Returns `None` if there was no call to
    /// make.
    ///
    /// # Errors
    /// As [`Region::handle_outcome`]. The refused outcome has changed nothing.
    pub fn run(
        &mut self,
        mut device: impl FnMut(MemoryCall<'_, P, B, H>) -> MemoryOutcome<H>,
    ) -> Result<Option<Ended<B>>, MemoryFault> {
        while let Some(call) = self.call() {
            let outcome = device(call);
            if let Some(ended) = self.handle_outcome(outcome)? {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    /// Reports the outcome of the call. Returns the result of the request if it has ended; otherwise another call
    /// follows.
    ///
    /// # Errors
    /// [`MemoryFault`] if no such call is under way.
    pub fn handle_outcome(&mut self, outcome: MemoryOutcome<H>) -> Result<Option<Ended<B>>, MemoryFault> {
        match outcome {
            MemoryOutcome::Registered(Ok((handle, keys))) => {
                let (from, _) = self.outcome_rule(Input::Made, MemoryRequest::Register)?;
                Ok(self.made(from, handle, keys))
            }
            MemoryOutcome::Registered(Err(errno)) => {
                let (from, _) = self.outcome_rule(Input::NotMade, MemoryRequest::Register)?;
                Ok(self.not_made(from, errno))
            }
            MemoryOutcome::Reregistered(reply) => self.replied(reply),
            MemoryOutcome::Deregistered(Ok(())) => {
                let two = self.state == MrState::Discarding && self.new.is_some();
                let (from, _) =
                    self.outcome_rule(if two { Input::OneEnded } else { Input::Ended }, MemoryRequest::Deregister)?;
                Ok(self.ended(from))
            }
            MemoryOutcome::Deregistered(Err(errno)) => {
                let input = if survives(errno) { Input::Kept } else { Input::Lost };
                let (from, to) = self.outcome_rule(input, MemoryRequest::Deregister)?;
                Ok(self.not_ended(from, to, errno))
            }
        }
    }

    /// Reports the removal of the device: only a deregistration is legal from now on. A call that is under way still
    /// has an outcome. A fallback that is under way is completed or undone; no new fallback begins.
    pub fn handle_removal(&mut self) {
        self.removed = true;
        if let Cell::Go(state) = rules::MR[self.state.index()][Input::Removal.index()] {
            self.set_state(state);
        }
    }

    /// Returns the current state.
    #[must_use]
    pub const fn state(&self) -> MrState {
        self.state
    }

    /// Returns how the present registration was made.
    #[must_use]
    pub const fn way(&self) -> Way {
        self.way
    }

    /// Returns the keys of the valid registration; `None` if none is valid, and while a request is under way.
    #[must_use]
    pub fn keys(&self) -> Option<Keys> {
        self.valid().map(|registration| registration.keys)
    }

    /// Returns the PD of the valid registration; `None` if none is valid, and while a request is under way.
    #[must_use]
    pub fn pd(&self) -> Option<&P> {
        self.valid().map(|registration| &registration.pd)
    }

    /// Returns the access rights of the valid registration; `None` if none is valid, and while a request is under
    /// way.
    #[must_use]
    pub fn access(&self) -> Option<Access> {
        self.valid().map(|registration| registration.access)
    }

    /// Returns the PD and the keys that work requests in flight may name: those of the valid registration, or of the
    /// last valid one. Unlike [`Region::keys`] they remain after a removal of the device, because work requests may
    /// still be in flight.
    #[must_use]
    pub fn named(&self) -> Option<(&P, Keys)> {
        self.old.as_ref().map(|old| (&old.pd, old.keys))
    }

    /// Returns the buffer of the valid registration, or of the last valid one; `None` before the first registration
    /// and when the region is gone.
    #[must_use]
    pub const fn buffer(&self) -> Option<&B> {
        self.buffer.as_ref()
    }

    /// Returns the memory of a failed re-registration of which the device may have a record, or the earlier memory after
    /// one in place, if the device [copies late](Pd::copies_late) and peers could write to it. It is kept until the region is
    /// deregistered. Until then a re-registration cannot change the memory.
    #[must_use]
    pub const fn in_doubt(&self) -> Option<&B> {
        self.in_doubt.as_ref()
    }

    /// Whether peers may be able to write to its memory although its rights do not include that: a re-registration with
    /// that right has failed, or one in place has taken the right away on a device that [copies late](Pd::copies_late). A
    /// packet of the peer may then still arrive. This ends with a deregistration, or a re-registration by [`Way::Anew`].
    #[must_use]
    pub const fn is_exposed(&self) -> bool {
        self.exposed
    }

    /// Returns the valid registration. `None` also while a request is under way, because work requests that are posted
    /// meanwhile would not count as traffic of that request.
    fn valid(&self) -> Option<&Registration<P, H>> {
        self.old.as_ref().filter(|_| self.state == MrState::Registered)
    }

    fn wanted_access(&self) -> Access {
        let old = self.old.as_ref().map(|old| old.access);
        self.change.access.or(old).unwrap_or(Access::empty())
    }

    /// Refuses a request while a memory window may be bound to the MR, or work requests in flight name it, even after the removal of its device: some
    /// providers copy received data to the memory when the completion is polled, and check no key
    /// (`mlx5_copy_to_recv_wqe`).
    const fn quiet(traffic: Traffic) -> Result<(), MemoryReason> {
        match traffic {
            Traffic::InFlight => Err(MemoryReason::InFlight),
            Traffic::WindowBound => Err(MemoryReason::WindowBound),
            Traffic::Quiet => Ok(()),
        }
    }

    /// Refuses new memory while a buffer is in doubt, and a new PD while a PD is, because a region can keep only one of
    /// each.
    const fn sure(&self, change: &Change<P, B>) -> Result<(), MemoryReason> {
        let is_third = change.buffer.is_some() && self.in_doubt.is_some();
        if is_third || change.pd.is_some() && self.pd_in_doubt.is_some() {
            return Err(MemoryReason::InDoubt);
        }
        Ok(())
    }

    fn request_rule(&self, input: Input) -> Result<MrState, MemoryReason> {
        match rules::MR[self.state.index()][input.index()] {
            Cell::Go(next) => Ok(next),
            Cell::Refuse(_) if self.removed && self.state == MrState::Unusable => Err(MemoryReason::DeviceGone),
            Cell::Refuse(reason) => Err(reason),
            Cell::Fault => Err(MemoryReason::Busy),
        }
    }

    /// Changes the state as the table defines. Returns the previous state and the state of the table's cell, which does
    /// not depend on a removal.
    fn outcome_rule(&mut self, input: Input, outcome: MemoryRequest) -> Result<(MrState, MrState), MemoryFault> {
        let from = self.state;
        match rules::MR[from.index()][input.index()] {
            Cell::Go(next) => {
                self.set_state(next);
                Ok((from, next))
            }
            Cell::Refuse(_) | Cell::Fault => Err(MemoryFault { outcome, target: MemoryTarget::Mr(Some(from)) }),
        }
    }

    fn refused(&self, request: MemoryRequest, reason: MemoryReason) -> MemoryRefused {
        MemoryRefused { request, target: MemoryTarget::Mr(Some(self.state)), reason }
    }

    /// Sets the state. No other function does.
    fn set_state(&mut self, state: MrState) {
        self.state = if self.removed && state == MrState::Registered { MrState::Unusable } else { state };
    }
}
