//! State tables of an MR and of a PD.
//!
//! A row has one cell for each [`Input`], and there is one row for each [`MrState`] (for a PD: [`PdInput`] and
//! [`PdState`]). A new variant does not compile until the table has a cell for it.

use crate::columns::columns;
use crate::memory::MemoryReason;

columns! {
    /// The kind of a request.
    pub enum MemoryRequest {
        /// `ibv_reg_mr`.
        Register = "register",
        /// `ibv_rereg_mr`.
        Reregister = "re-register",
        /// `ibv_dereg_mr`.
        Deregister = "deregister",
        /// Creation of an object that belongs to a PD.
        Use = "use",
        /// `ibv_dealloc_pd`.
        Dealloc = "deallocate",
    }
}

columns! {
    /// The state of an MR.
    pub enum MrState {
        /// `ibv_reg_mr` is under way.
        Registering = "registering",
        /// Its registration is valid.
        Registered = "registered",
        /// `ibv_rereg_mr` is under way.
        Changing = "re-registering",
        /// The fallback: `ibv_reg_mr` of the new registration is under way; the old one is valid.
        Replacing = "registering anew",
        /// The fallback: both registrations exist, and `ibv_dereg_mr` of the old one is under way.
        Retiring = "deregistering the old one",
        /// The fallback has failed: both registrations exist, and `ibv_dereg_mr` of the new one is under way.
        Undoing = "deregistering the new one",
        /// Neither registration is known to be valid, or the device is gone. Only a deregistration is legal.
        Unusable = "unusable",
        /// `ibv_dereg_mr` is under way.
        Deregistering = "deregistering",
        /// `ibv_dereg_mr` of an unusable MR is under way. If a failed fallback left both registrations, they are
        /// deregistered one after the other.
        Discarding = "discarding",
        /// Deregistered, or the registration failed.
        Gone = "gone",
    }
}

columns! {
    /// The inputs of an MR.
    pub enum Input {
        /// The application requests a re-registration.
        Reregister = "re-register",
        /// The application requests a deregistration.
        Deregister = "deregister",
        /// The device is removed.
        Removal = "device removal",
        /// `ibv_reg_mr` succeeded.
        Made = "registered",
        /// `ibv_reg_mr` failed.
        NotMade = "not registered",
        /// `ibv_rereg_mr` left the new registration valid ([`valid_after`](crate::memory::valid_after)).
        New = "new is valid",
        /// `ibv_rereg_mr` left the old registration valid.
        Old = "old is valid",
        /// `ibv_rereg_mr` left neither valid.
        Neither = "neither is valid",
        /// `ibv_rereg_mr` is not supported, and the policy has a fallback.
        Unsupported = "not supported, fallback",
        /// `ibv_dereg_mr` succeeded.
        Ended = "deregistered",
        /// `ibv_dereg_mr` of the new one of two registrations succeeded; the old one is next.
        OneEnded = "one of two deregistered",
        /// `ibv_dereg_mr` failed and has changed nothing.
        Kept = "deregistration refused",
        /// `ibv_dereg_mr` failed, and the state of the registration is unknown.
        Lost = "deregistration failed",
    }
}

columns! {
    /// The state of a PD.
    pub enum PdState {
        /// `ibv_alloc_pd` is under way.
        Allocating = "allocating",
        /// Objects that belong to it can be created.
        Live = "live",
        /// `ibv_dealloc_pd` is under way.
        Deallocating = "deallocating",
        /// The device is gone. No object can be created any more.
        Stranded = "without its device",
        /// Deallocated, or the allocation failed.
        Gone = "gone",
    }
}

columns! {
    /// The inputs of a PD.
    pub enum PdInput {
        /// An object that belongs to the PD is about to be created.
        Use = "use",
        /// The application requests the deallocation, and no object belongs to the PD.
        Dealloc = "deallocate",
        /// The device is removed.
        Removal = "device removal",
        /// The call succeeded.
        Done = "done",
        /// The call failed.
        Failed = "failed",
    }
}

/// The effect of an input in a state of type `S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cell<S> {
    /// The next state.
    Go(S),
    /// The caller's mistake: the request is refused, and nothing changes.
    Refuse(MemoryReason),
    /// No call with such an outcome is under way: nothing changes.
    Fault,
}

/// Short names for the cells, so that a row fits on one line.
#[allow(non_upper_case_globals, reason = "cells of a table, not constants of a program")]
mod mr {
    use super::{Cell, MemoryReason, MrState};
    pub(super) const Reg: Cell<MrState> = Cell::Go(MrState::Registering);
    pub(super) const Liv: Cell<MrState> = Cell::Go(MrState::Registered);
    pub(super) const Chg: Cell<MrState> = Cell::Go(MrState::Changing);
    pub(super) const Rep: Cell<MrState> = Cell::Go(MrState::Replacing);
    pub(super) const Ret: Cell<MrState> = Cell::Go(MrState::Retiring);
    pub(super) const Und: Cell<MrState> = Cell::Go(MrState::Undoing);
    pub(super) const Bad: Cell<MrState> = Cell::Go(MrState::Unusable);
    pub(super) const Der: Cell<MrState> = Cell::Go(MrState::Deregistering);
    pub(super) const Dis: Cell<MrState> = Cell::Go(MrState::Discarding);
    pub(super) const END: Cell<MrState> = Cell::Go(MrState::Gone);
    pub(super) const bsy: Cell<MrState> = Cell::Refuse(MemoryReason::Busy);
    pub(super) const onl: Cell<MrState> = Cell::Refuse(MemoryReason::OnlyDeregister);
    pub(super) const gon: Cell<MrState> = Cell::Refuse(MemoryReason::Gone);
    pub(super) const ___: Cell<MrState> = Cell::Fault;
}

/// The state table of an MR: one row per [`MrState`], one column per [`Input`], both in the order of `ALL`. After a
/// removal of the device, *unusable* replaces *registered* as the next state. In that state a refusal has the reason
/// [`MemoryReason::DeviceGone`].
///
/// Sources: ibv_rereg_mr(3); `ibv_rereg_mr` of libibverbs and `ib_uverbs_rereg_mr` of the kernel.
#[rustfmt::skip]
pub static MR: [[Cell<MrState>; Input::COUNT]; MrState::COUNT] = {
    use mr::*;
    [
        //                   rere  dere  remo  made  notm  new   old   neit  unsu  ende  one   kept  lost
        /* Registering   */ [bsy,  bsy,  Reg,  Liv,  END,  ___,  ___,  ___,  ___,  ___,  ___,  ___,  ___],
        /* Registered    */ [Chg,  Der,  Bad,  ___,  ___,  ___,  ___,  ___,  ___,  ___,  ___,  ___,  ___],
        /* Changing      */ [bsy,  bsy,  Chg,  ___,  ___,  Liv,  Liv,  Bad,  Rep,  ___,  ___,  ___,  ___],
        /* Replacing     */ [bsy,  bsy,  Rep,  Ret,  Liv,  ___,  ___,  ___,  ___,  ___,  ___,  ___,  ___],
        /* Retiring      */ [bsy,  bsy,  Ret,  ___,  ___,  ___,  ___,  ___,  ___,  Liv,  ___,  Und,  Bad],
        /* Undoing       */ [bsy,  bsy,  Und,  ___,  ___,  ___,  ___,  ___,  ___,  Liv,  ___,  Bad,  Bad],
        /* Unusable      */ [onl,  Dis,  Bad,  ___,  ___,  ___,  ___,  ___,  ___,  ___,  ___,  ___,  ___],
        /* Deregistering */ [bsy,  bsy,  Der,  ___,  ___,  ___,  ___,  ___,  ___,  END,  ___,  Liv,  Bad],
        /* Discarding    */ [bsy,  bsy,  Dis,  ___,  ___,  ___,  ___,  ___,  ___,  END,  Dis,  Bad,  Bad],
        /* Gone          */ [gon,  gon,  END,  ___,  ___,  ___,  ___,  ___,  ___,  ___,  ___,  ___,  ___],
    ]
};

/// Short names for the cells, so that a row fits on one line.
#[allow(non_upper_case_globals, reason = "cells of a table, not constants of a program")]
mod pd {
    use super::{Cell, MemoryReason, PdState};
    pub(super) const All: Cell<PdState> = Cell::Go(PdState::Allocating);
    pub(super) const Liv: Cell<PdState> = Cell::Go(PdState::Live);
    pub(super) const Dea: Cell<PdState> = Cell::Go(PdState::Deallocating);
    pub(super) const Str: Cell<PdState> = Cell::Go(PdState::Stranded);
    pub(super) const END: Cell<PdState> = Cell::Go(PdState::Gone);
    pub(super) const bsy: Cell<PdState> = Cell::Refuse(MemoryReason::Busy);
    pub(super) const dev: Cell<PdState> = Cell::Refuse(MemoryReason::DeviceGone);
    pub(super) const gon: Cell<PdState> = Cell::Refuse(MemoryReason::Gone);
    pub(super) const ___: Cell<PdState> = Cell::Fault;
}

/// The state table of a PD: one row per [`PdState`], one column per [`PdInput`], both in the order of `ALL`. After a
/// removal of the device, *without its device* replaces *live* as the next state.
///
/// Sources: ibv_alloc_pd(3); `uverbs_free_pd` of the kernel.
#[rustfmt::skip]
pub static PD: [[Cell<PdState>; PdInput::COUNT]; PdState::COUNT] = {
    use pd::*;
    [
        //                  use   deal  remo  done  fail
        /* Allocating   */ [bsy,  bsy,  All,  Liv,  END],
        /* Live         */ [Liv,  Dea,  Str,  ___,  ___],
        /* Deallocating */ [bsy,  bsy,  Dea,  END,  Liv],
        /* Stranded     */ [dev,  Dea,  Str,  ___,  ___],
        /* Gone         */ [gon,  gon,  END,  ___,  ___],
    ]
};
