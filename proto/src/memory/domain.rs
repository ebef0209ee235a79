//! One protection domain.

use crate::errno::Errno;
use crate::memory::table::{self, Cell, PdInput};
use crate::memory::{Fault, PdState, Refused, Subject, Verb, Why};

/// The life of a PD, and how many things belong to it: MRs, QPs, address handles, memory windows.
///
/// Its two calls are `ibv_alloc_pd`, under way when it is made, and `ibv_dealloc_pd`, after [`Domain::dealloc`].
///
/// ```
/// use cmid_proto::memory::{Domain, PdState, Why};
///
/// let mut domain = Domain::alloc();
/// domain.handle_outcome(Ok(()))?; // of ibv_alloc_pd
/// domain.acquire()?; // an MR is registered
/// assert_eq!(domain.dealloc().unwrap_err().why, Why::InUse(1)); // the kernel would say EBUSY
/// domain.release(); // it is deregistered
/// domain.dealloc()?;
/// domain.handle_outcome(Ok(()))?; // of ibv_dealloc_pd
/// assert_eq!(domain.state(), PdState::Gone);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Domain {
    state: PdState,
    removed: bool,
    users: u32,
}

impl Domain {
    /// One whose `ibv_alloc_pd` is under way.
    #[must_use]
    pub const fn alloc() -> Self {
        Domain { state: PdState::Allocating, removed: false, users: 0 }
    }

    /// Where it is in its life.
    #[must_use]
    pub const fn state(&self) -> PdState {
        self.state
    }

    /// How many things belong to it, those included that are being made or taken away.
    #[must_use]
    pub const fn users(&self) -> u32 {
        self.users
    }

    /// Something is about to be made that belongs to it. [`Domain::release`] when that is gone, or did not come to be.
    ///
    /// # Errors
    /// [`Why::Busy`], [`Why::DeviceGone`], [`Why::Gone`].
    pub fn acquire(&mut self) -> Result<(), Refused> {
        let next = self.asked(PdInput::Use, Verb::Use)?;
        self.set_state(next);
        self.users = self.users.saturating_add(1);
        Ok(())
    }

    /// What uses it has one use more: for the clone of a use. In every state, because nothing begins to use it that did not: a
    /// fallback that is under way when the device goes still has its second registration.
    pub const fn share(&mut self) {
        self.users = self.users.saturating_add(1);
    }

    /// Something that belonged to it is gone.
    pub const fn release(&mut self) {
        self.users = self.users.saturating_sub(1);
    }

    /// To be deallocated: make the call and report its outcome.
    ///
    /// # Errors
    /// [`Why::InUse`], [`Why::Busy`], [`Why::Gone`].
    pub fn dealloc(&mut self) -> Result<(), Refused> {
        let next = self.asked(PdInput::Dealloc, Verb::Dealloc)?;
        if self.users > 0 {
            return Err(self.refused(Verb::Dealloc, Why::InUse(self.users)));
        }
        self.set_state(next);
        Ok(())
    }

    /// What the call that is under way returned. A PD that could not be deallocated lives on, and it can be tried again.
    ///
    /// # Errors
    /// If no call is under way.
    pub fn handle_outcome(&mut self, outcome: Result<(), Errno>) -> Result<(), Fault> {
        let input = if outcome.is_ok() { PdInput::Done } else { PdInput::Failed };
        match table::PD[self.state.index()][input.index()] {
            Cell::Go(state) => {
                self.set_state(state);
                Ok(())
            }
            Cell::Refuse(_) | Cell::Fault => Err(Fault { outcome: Verb::Dealloc, subject: Subject::Pd(self.state) }),
        }
    }

    /// Its device is gone: nothing more can be made with it. A call that is under way still has its outcome.
    pub fn handle_removal(&mut self) {
        self.removed = true;
        if let Cell::Go(state) = table::PD[self.state.index()][PdInput::Removal.index()] {
            self.set_state(state);
        }
    }

    fn asked(&self, input: PdInput, verb: Verb) -> Result<PdState, Refused> {
        match table::PD[self.state.index()][input.index()] {
            Cell::Go(next) => Ok(next),
            Cell::Refuse(why) => Err(self.refused(verb, why)),
            Cell::Fault => Err(self.refused(verb, Why::Busy)),
        }
    }

    const fn refused(&self, request: Verb, why: Why) -> Refused {
        Refused { request, subject: Subject::Pd(self.state), why }
    }

    /// The one place where its state changes.
    fn set_state(&mut self, state: PdState) {
        self.state = if self.removed && state == PdState::Live { PdState::Stranded } else { state };
    }
}
