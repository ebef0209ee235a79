//! The arguments of a re-registration.

use crate::error_with::ErrorWith;
use crate::memory::{Access, Buffer, MemoryReason, Pd};

bitflags::bitflags! {
    /// The flags of `ibv_rereg_mr`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Changes: u32 {
        /// The address and length of the memory.
        const TRANSLATION = 1;
        /// The PD.
        const PD = 2;
        /// The access rights.
        const ACCESS = 4;
    }
}

/// The changes of a re-registration. `None` keeps the property unchanged. The flags of the call are derived from the
/// fields, so a flag and its argument are always set together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change<P, B> {
    /// The new memory (`IBV_REREG_MR_CHANGE_TRANSLATION`).
    pub buffer: Option<B>,
    /// The new PD (`IBV_REREG_MR_CHANGE_PD`).
    pub pd: Option<P>,
    /// The new access rights (`IBV_REREG_MR_CHANGE_ACCESS`).
    pub access: Option<Access>,
}

impl<P, B> Default for Change<P, B> {
    fn default() -> Self {
        Change { buffer: None, pd: None, access: None }
    }
}

impl<P, B> Change<P, B> {
    /// Sets the new memory.
    #[must_use]
    pub fn to_buffer(self, buffer: impl Into<B>) -> Self {
        Change { buffer: Some(buffer.into()), ..self }
    }

    /// Sets the new PD.
    #[must_use]
    pub fn to_pd(self, pd: P) -> Self {
        Change { pd: Some(pd), ..self }
    }

    /// Sets the new access rights.
    #[must_use]
    pub fn to_access(self, access: Access) -> Self {
        Change { access: Some(access), ..self }
    }

    /// Converts the PD to another type, for example from a handle to a use of the PD.
    ///
    /// # Errors
    /// The error of `convert`. The change is returned as it was.
    pub fn try_map_pd<Q, E>(
        self,
        convert: impl FnOnce(&P) -> Result<Q, E>,
    ) -> Result<Change<Q, B>, ErrorWith<Self, E>> {
        match self.pd.as_ref().map(convert).transpose() {
            Ok(pd) => Ok(Change { buffer: self.buffer, pd, access: self.access }),
            Err(error) => Err(ErrorWith::new(self, error)),
        }
    }

    /// Returns the flags of the call.
    #[must_use]
    pub fn flags(&self) -> Changes {
        let mut flags = Changes::empty();
        flags.set(Changes::TRANSLATION, self.buffer.is_some());
        flags.set(Changes::PD, self.pd.is_some());
        flags.set(Changes::ACCESS, self.access.is_some());
        flags
    }
}

impl<P: Pd, B: Buffer> Change<P, B> {
    /// Makes the checks that need no device call.
    pub(crate) fn check(&self, old: &P) -> Result<(), MemoryReason> {
        if self.flags().is_empty() {
            return Err(MemoryReason::NothingToChange);
        }
        if self.buffer.as_ref().is_some_and(B::is_empty) {
            return Err(MemoryReason::Empty);
        }
        if self.pd.as_ref().is_some_and(|pd| !pd.same_device(old)) {
            return Err(MemoryReason::OtherDevice);
        }
        self.access.map_or(Ok(()), Access::check)
    }
}
