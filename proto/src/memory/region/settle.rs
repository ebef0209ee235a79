//! The effects of outcomes on a region besides its state.

use crate::errno::Errno;
use crate::memory::outcome::may_know_new;
use crate::memory::region::{Region, Registration};
use crate::memory::rules::Input;
use crate::memory::{
    Access, Buffer, Code, Ended, Fallback, Keys, MemoryFailure, MemoryFault, MemoryRequest, MemoryStep, MrState, Pd,
    Reply, Returned, Settled, Valid, Way, valid_after,
};

impl<P: Pd, B: Buffer, H> Region<P, B, H> {
    /// Handles a successful `ibv_reg_mr`, called in state `from`.
    pub(super) fn made(&mut self, from: MrState, handle: H, keys: Keys) -> Option<Ended<B>> {
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

    /// Handles a failed `ibv_reg_mr`, called in state `from`.
    pub(super) fn not_made(&mut self, from: MrState, errno: Errno) -> Option<Ended<B>> {
        let buffer = self.drop_change();
        if from == MrState::Replacing {
            let failure = MemoryFailure { step: MemoryStep::RegisterAnew, errno, valid: Valid::Old };
            return Some(Ended::Reregistered(Settled { result: Err(failure), buffer }));
        }
        Some(Ended::NotRegistered(errno, buffer?))
    }

    /// Handles the return of `ibv_rereg_mr`.
    pub(super) fn replied(&mut self, reply: Reply) -> Result<Option<Ended<B>>, MemoryFault> {
        let code = Code::from_raw(reply.code);
        let valid = valid_after(code, reply.errno, self.policy.provider);
        let unsupported = code == Code::Cmd && reply.errno == Errno::EOPNOTSUPP;
        let fallback = self.policy.fallback == Fallback::Anew && !self.removed;
        let input = match valid {
            Valid::Old if unsupported && fallback => Input::Unsupported,
            Valid::Old => Input::Old,
            Valid::New => Input::New,
            Valid::Neither => Input::Neither,
        };
        self.outcome_rule(input, MemoryRequest::Reregister)?;
        if input == Input::Unsupported {
            return Ok(None);
        }
        let buffer = match valid {
            Valid::Old if may_know_new(code, reply.errno) => {
                self.exposed |= self.change.access.is_some_and(Access::lets_peers_write);
                self.pd_in_doubt = self.change.pd.take().or_else(|| self.pd_in_doubt.take());
                self.in_doubt = self.drop_change().or_else(|| self.in_doubt.take());
                None
            }
            Valid::Old => self.drop_change(),
            Valid::New => {
                self.way = Way::InPlace;
                self.apply(reply.keys)
            }
            // The device may refer to either PD and either buffer: both are kept.
            Valid::Neither => None,
        };
        let result = match code {
            Code::Done => Ok(Way::InPlace),
            Code::Input
            | Code::DontForkNew
            | Code::DoForkOld
            | Code::Cmd
            | Code::CmdAndDoForkNew
            | Code::Unknown(_) => Err(MemoryFailure { step: MemoryStep::Reregister(code), errno: reply.errno, valid }),
        };
        Ok(Some(Ended::Reregistered(Settled { result, buffer })))
    }

    /// Handles a successful `ibv_dereg_mr`, called in state `from`.
    pub(super) fn ended(&mut self, from: MrState) -> Option<Ended<B>> {
        match from {
            MrState::Retiring => {
                self.old = self.new.take();
                (self.way, self.exposed, self.pd_in_doubt) = (Way::Anew, false, None);
                let buffer = self.take_over();
                Some(Ended::Reregistered(Settled { result: Ok(Way::Anew), buffer }))
            }
            MrState::Undoing => {
                self.new = None;
                let errno = self.undone_for.take()?;
                let failure = MemoryFailure { step: MemoryStep::DeregisterOld, errno, valid: Valid::Old };
                let buffer = self.drop_change();
                Some(Ended::Reregistered(Settled { result: Err(failure), buffer }))
            }
            // The new one of two is deregistered; the old one is next.
            MrState::Discarding if self.new.take().is_some() => None,
            MrState::Deregistering | MrState::Discarding => {
                (self.old, self.pd_in_doubt) = (None, None);
                let other = self.drop_change().or_else(|| self.in_doubt.take());
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

    /// Handles a failed `ibv_dereg_mr`, called in state `from`; the next state of the table is `to`.
    pub(super) fn not_ended(&mut self, from: MrState, to: MrState, errno: Errno) -> Option<Ended<B>> {
        let valid = if to == MrState::Registered { Valid::Old } else { Valid::Neither };
        let first = self.undone_for.take();
        match (from, to) {
            (MrState::Retiring, MrState::Undoing) => {
                self.undone_for = Some(errno);
                None
            }
            (MrState::Retiring | MrState::Undoing, _) => {
                let failure = MemoryFailure { step: MemoryStep::DeregisterOld, errno: first.unwrap_or(errno), valid };
                Some(Ended::Reregistered(Settled { result: Err(failure), buffer: None }))
            }
            (_, _) => Some(Ended::NotDeregistered(MemoryFailure { step: MemoryStep::Deregister, errno, valid })),
        }
    }

    /// Applies the change to the old registration, as a successful `ibv_rereg_mr` does. Returns the old buffer, unless a
    /// packet of a peer may still be copied to it.
    fn apply(&mut self, keys: Keys) -> Option<B> {
        let mut is_late = false;
        if let Some(old) = &mut self.old {
            is_late = (self.exposed || old.access.lets_peers_write()) && old.pd.copies_late();
            self.exposed = is_late || self.exposed && self.change.access.is_none();
            old.keys = keys;
            if let Some(pd) = self.change.pd.take() {
                old.pd = pd;
            }
            if let Some(access) = self.change.access {
                old.access = access;
            }
        }
        let before = self.take_over();
        if !is_late {
            return before;
        }
        self.in_doubt = before.or_else(|| self.in_doubt.take());
        None
    }

    /// Replaces the region's buffer by the new one, if there is one. Returns the previous buffer.
    fn take_over(&mut self) -> Option<B> {
        let wanted = self.drop_change()?;
        self.buffer.replace(wanted)
    }

    /// Drops the pending change: the use of its PD ends, and its buffer is returned.
    fn drop_change(&mut self) -> Option<B> {
        core::mem::take(&mut self.change).buffer
    }
}
