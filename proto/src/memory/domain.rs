//! One protection domain.

use crate::errno::Errno;
use crate::memory::rules::{self, Cell, PdInput};
use crate::memory::{MemoryFault, MemoryReason, MemoryRefused, MemoryRequest, MemoryTarget, PdState};

/// The state of a PD, and the number of objects that belong to it: MRs, QPs, address handles, memory windows.
///
/// It has two calls: `ibv_alloc_pd`, which is under way from the start, and `ibv_dealloc_pd`, after
/// [`Domain::dealloc`].
///
/// ```
/// use cmid_proto::memory::{Domain, MemoryReason, PdState};
///
/// let mut domain = Domain::alloc();
/// domain.handle_outcome(Ok(()))?; // of ibv_alloc_pd
/// domain.acquire()?; // an MR is registered
/// assert_eq!(domain.dealloc().unwrap_err().reason, MemoryReason::InUse(1)); // the kernel would return EBUSY
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
    /// Creates a PD; its `ibv_alloc_pd` is under way.
    #[must_use]
    pub const fn alloc() -> Self {
        Domain { state: PdState::Allocating, removed: false, users: 0 }
    }

    /// Returns the current state.
    #[must_use]
    pub const fn state(&self) -> PdState {
        self.state
    }

    /// Returns the number of objects that belong to it, including those that are being created or destroyed.
    #[must_use]
    pub const fn users(&self) -> u32 {
        self.users
    }

    /// Counts an object that is about to be created. Call [`Domain::release`] when the object is gone or could not be
    /// created.
    ///
    /// # Errors
    /// [`MemoryReason::Busy`], [`MemoryReason::DeviceGone`], [`MemoryReason::Gone`].
    pub fn acquire(&mut self) -> Result<(), MemoryRefused> {
        let next = self.request_rule(PdInput::Use, MemoryRequest::Use)?;
        self.set_state(next);
        self.users = self.users.saturating_add(1);
        Ok(())
    }

    /// Counts one more use by an object that uses the PD already, for the clone of a use. Legal in every state: a
    /// fallback that is under way when the device is removed still makes its second registration.
    pub const fn share(&mut self) {
        self.users = self.users.saturating_add(1);
    }

    /// Ends one use, of an object that is gone.
    pub const fn release(&mut self) {
        self.users = self.users.saturating_sub(1);
    }

    /// Starts the deallocation. Make the call and report its outcome.
    ///
    /// # Errors
    /// [`MemoryReason::InUse`], [`MemoryReason::Busy`], [`MemoryReason::Gone`].
    pub fn dealloc(&mut self) -> Result<(), MemoryRefused> {
        let next = self.request_rule(PdInput::Dealloc, MemoryRequest::Dealloc)?;
        if self.users > 0 {
            return Err(self.refused(MemoryRequest::Dealloc, MemoryReason::InUse(self.users)));
        }
        self.set_state(next);
        Ok(())
    }

    /// Reports the outcome of the call. If `ibv_dealloc_pd` failed, the PD stays allocated, and the deallocation can be
    /// repeated.
    ///
    /// # Errors
    /// [`MemoryFault`] if no call is under way.
    pub fn handle_outcome(&mut self, outcome: Result<(), Errno>) -> Result<(), MemoryFault> {
        let input = if outcome.is_ok() { PdInput::Done } else { PdInput::Failed };
        match rules::PD[self.state.index()][input.index()] {
            Cell::Go(state) => {
                self.set_state(state);
                Ok(())
            }
            Cell::Refuse(_) | Cell::Fault => {
                Err(MemoryFault { outcome: MemoryRequest::Dealloc, target: MemoryTarget::Pd(self.state) })
            }
        }
    }

    /// Reports the removal of the device: no object can be created any more. A call that is under way still has an
    /// outcome.
    pub fn handle_removal(&mut self) {
        self.removed = true;
        if let Cell::Go(state) = rules::PD[self.state.index()][PdInput::Removal.index()] {
            self.set_state(state);
        }
    }

    fn request_rule(&self, input: PdInput, request_kind: MemoryRequest) -> Result<PdState, MemoryRefused> {
        match rules::PD[self.state.index()][input.index()] {
            Cell::Go(next) => Ok(next),
            Cell::Refuse(reason) => Err(self.refused(request_kind, reason)),
            Cell::Fault => Err(self.refused(request_kind, MemoryReason::Busy)),
        }
    }

    const fn refused(&self, request: MemoryRequest, reason: MemoryReason) -> MemoryRefused {
        MemoryRefused { request, target: MemoryTarget::Pd(self.state), reason }
    }

    /// Sets the state. No other function does.
    fn set_state(&mut self, state: PdState) {
        self.state = if self.removed && state == PdState::Live { PdState::Stranded } else { state };
    }
}
