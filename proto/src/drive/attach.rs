//! A QP is put on an id, or taken off it, with the device's data path, which the core does not know.

use core::marker::PhantomData;

use super::Drive;
use crate::device::Device;
use crate::errno::Errno;
use crate::error::Error;
use crate::key::IdKey;
use crate::request::Request;
use crate::time::Time;

/// The permission to create one QP for an id. A data path creates none without it, so that there is no QP on an id of which
/// the core does not know. Only [`Drive::attach_qp`] has one to give, for as long as its closure runs:
///
/// ```compile_fail
/// # use cmid_proto::{Device, Drive, Error, IdKey};
/// fn keep<D: Device>(drive: &mut Drive<D>, id: IdKey) -> Result<(), Error> {
///     let mut kept = None;
///     drive.attach_qp(id, |_, attaching| Ok(kept = Some(attaching)))
/// }
/// ```
///
/// Nobody else can make one:
///
/// ```compile_fail
/// # use cmid_proto::{Attaching, IdKey};
/// fn forge(id: IdKey) -> Attaching<'static> {
///     Attaching { id, during: std::marker::PhantomData }
/// }
/// ```
#[derive(Debug)]
pub struct Attaching<'a> {
    id: IdKey,
    during: PhantomData<&'a mut ()>,
}

impl Attaching<'_> {
    fn to(id: IdKey) -> Self {
        Attaching { id, during: PhantomData }
    }

    /// For programs that use a device without a [`Drive`], as its tests do: where there is a core, it does not know of the QP.
    #[cfg(feature = "bare-device")]
    #[must_use]
    pub fn bare(id: IdKey) -> Self {
        Attaching::to(id)
    }

    /// The id that the QP is for.
    #[must_use]
    pub fn id(&self) -> IdKey {
        self.id
    }
}

impl<D: Device> Drive<D> {
    /// Puts a QP on an id: `create` makes it with the device's data path.
    ///
    /// # Errors
    /// Refused in a wrong state, without a device, if there is one, and with
    /// [`RefuseReason::NumberSent`](crate::RefuseReason::NumberSent) once the peer knows a QP number of this id; failed with what `create` failed
    /// with.
    pub fn attach_qp<Q>(
        &mut self,
        id: IdKey,
        create: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, Errno>,
    ) -> Result<Q, Error> {
        self.core.would_refuse(self.now.get(), id, &Request::AttachQp, Time::NEVER)?;
        let made = create(&mut self.device, Attaching::to(id));
        let qp = made.map_err(|errno| self.data_failure("create_qp", id, errno))?;
        self.note_qp(id, true)?;
        Ok(qp)
    }

    /// Takes the QP off an id: `destroy` does so in the device's data path.
    ///
    /// Drain the QP's CQs first: some providers remove the completions of a QP that is destroyed (`__mlx5_cq_clean`), others leave
    /// them in the CQ, where they pin memory and take room until the CQ is polled empty.
    ///
    /// # Errors
    /// Refused if there is none; failed with what `destroy` failed with.
    pub fn detach_qp(
        &mut self,
        id: IdKey,
        destroy: impl FnOnce(&mut D, IdKey) -> Result<(), Errno>,
    ) -> Result<(), Error> {
        self.core.would_refuse(self.now.get(), id, &Request::DetachQp, Time::NEVER)?;
        destroy(&mut self.device, id).map_err(|errno| self.data_failure("destroy_qp", id, errno))?;
        self.note_qp(id, false)
    }

    /// Makes the request, which was found to be allowed. An observing device sees it as every request.
    fn note_qp(&mut self, id: IdKey, has_qp: bool) -> Result<(), Error> {
        if !D::OBSERVES {
            self.core.note_qp(id, has_qp);
            return Ok(());
        }
        let request = if has_qp { Request::AttachQp } else { Request::DetachQp };
        Ok(self.submit(id, request, Time::NEVER)?)
    }
}
