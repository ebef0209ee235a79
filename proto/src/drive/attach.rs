//! Attaches and detaches the QP of an id. The device's data path creates and destroys the QP; the core only records it.

use core::marker::PhantomData;

use super::{Drive, Observer, Poller, Step};
use crate::datapath::CreateError;
use crate::device::Device;
use crate::errno::Errno;
use crate::error::{Error, FailureCause};
use crate::key::IdKey;
use crate::request::Request;
use crate::time::Time;

/// The permission to create one QP for an id. A data path requires it, so the core has a record of every QP on an id.
/// Only [`Drive::attach_qp`] creates one. It is valid while the closure runs:
///
/// ```compile_fail
/// # use cmid_proto::{Device, Drive, Error, IdKey};
/// fn keep<D: Device>(drive: &mut Drive<D>, id: IdKey) -> Result<(), Error> {
///     let mut kept = None;
///     drive.attach_qp(id, |_, attaching| Ok(kept = Some(attaching)))
/// }
/// ```
///
/// No other code can create one:
///
/// ```compile_fail
/// # use cmid_proto::{IdKey};
/// # use cmid_proto::datapath::Attaching;
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

    /// Creates a permission without a [`Drive`], for tests of a device. No core records the QP.
    #[cfg(feature = "bare-device")]
    #[must_use]
    pub fn bare(id: IdKey) -> Self {
        Attaching::to(id)
    }

    /// Returns the id that the QP is for.
    #[must_use]
    pub fn id(&self) -> IdKey {
        self.id
    }
}

impl<D: Device, P: Poller<D>, O: Observer> Drive<D, P, O> {
    /// Attaches a QP to an id. `create` creates it with the device's data path.
    ///
    /// # Errors
    /// Refused in a wrong state, without a device, if the id has a QP already, and with
    /// [`RefuseReason::NumberSent`](crate::RefuseReason::NumberSent) once a QP number of this id was sent to the peer;
    /// failed with the error of `create` ([`FailureCause::Create`]). If `create` fails or
    /// panics, a QP that it has created is destroyed, and the id is as before. So it is if `create` succeeds without a
    /// QP ([`Device::has_qp`]).
    #[doc(alias("rdma_create_qp", "rdma_create_qp_ex", "ibv_create_qp"))]
    pub fn attach_qp<Q>(
        &mut self,
        id: IdKey,
        create: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, CreateError>,
    ) -> Result<Q, Error> {
        self.attach(id, create, |drive, error| drive.creation_failure(id, error))
    }

    /// The error of [`Drive::attach_qp`] for an error of its closure.
    pub(crate) fn creation_failure(&self, id: IdKey, error: CreateError) -> Error {
        self.data_failure("create_qp", id, error.errno(), FailureCause::of_creation(error))
    }

    /// As [`Drive::attach_qp`], with any error of the closure, which is returned unchanged. The error of a refused request
    /// is converted into it.
    ///
    /// ```
    /// use cmid_proto::datapath::{CreateError, DataPath, QpParts};
    /// use cmid_proto::{Drive, Error, IdKey};
    ///
    /// /// The error of a program.
    /// #[derive(Debug)]
    /// enum Fails {
    ///     Unlicensed,
    ///     Creation(CreateError),
    ///     Request(Error),
    /// }
    /// # impl From<CreateError> for Fails {
    /// #     fn from(error: CreateError) -> Self {
    /// #         Fails::Creation(error)
    /// #     }
    /// # }
    /// # impl From<Error> for Fails {
    /// #     fn from(error: Error) -> Self {
    /// #         Fails::Request(error)
    /// #     }
    /// # }
    ///
    /// fn attach<D: DataPath>(drive: &mut Drive<D>, id: IdKey, licensed: u32) -> Result<QpParts<D>, Fails> {
    ///     drive.try_attach_qp(id, |device, attaching| {
    ///         let made = device.qp(attaching).attach()?;
    ///         if licensed > 0 { Ok(made) } else { Err(Fails::Unlicensed) }
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// The error of `create`; otherwise as [`Drive::attach_qp`].
    pub fn try_attach_qp<Q, E: From<Error>>(
        &mut self,
        id: IdKey,
        create: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
    ) -> Result<Q, E> {
        self.attach(id, create, |_, error| error)
    }

    fn attach<Q, E, F: From<Error>>(
        &mut self,
        id: IdKey,
        create: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
        failed: impl FnOnce(&Self, E) -> F,
    ) -> Result<Q, F> {
        self.query_transport(id);
        let Drive { core, outside, .. } = self;
        let begun = core.begin(outside.now.get(), id, &Request::AttachQp, Time::NEVER).map_err(Error::from)?;
        let attempt = Attempt::new(&mut outside.device, |device: &mut D| device.discard_qp(id));
        let made = attempt.make(|device| create(device, Attaching::to(id)));
        // The request is made before the match on the result, which would copy the QP once more. Without a QP it is not
        // made: the number 0 would be sent to the peer.
        if made.is_ok() && outside.device.has_qp(id) != Some(false) {
            outside.make_calls(begun)?;
            self.record(Step::Submit { id, request: Request::AttachQp, deadline: Time::NEVER, result: Ok(()) });
        }
        made.map_err(|error| failed(self, error))
    }

    /// Detaches the QP of an id. `destroy` destroys it with the device's data path.
    ///
    /// Drain the QP's CQs first. Some providers remove the completions of a destroyed QP (`__mlx5_cq_clean`). Others
    /// leave them in the CQ, where they pin memory and occupy room until the CQ is polled empty.
    ///
    /// # Errors
    /// Refused if the id has no QP; failed with the errno of `destroy`. If `destroy` fails or panics after it has destroyed
    /// the QP, the id has none nevertheless; if it succeeds and has not destroyed it, the id still has it
    /// ([`Device::has_qp`]).
    #[doc(alias("rdma_destroy_qp", "ibv_destroy_qp"))]
    pub fn detach_qp(
        &mut self,
        id: IdKey,
        destroy: impl FnOnce(&mut D, IdKey) -> Result<(), Errno>,
    ) -> Result<(), Error> {
        self.core.would_refuse(self.outside.now.get(), id, &Request::DetachQp, Time::NEVER)?;
        let undo = |drive: &mut Self| {
            if drive.outside.device.has_qp(id) == Some(false) {
                // It is not refused: the same request was checked before.
                let _ = drive.request(id, Request::DetachQp, Time::NEVER);
            }
        };
        let destroyed = Attempt::new(self, undo).make(|drive| destroy(&mut drive.outside.device, id));
        destroyed.map_err(|errno| self.data_failure("destroy_qp", id, errno, None))?;
        if self.outside.device.has_qp(id) == Some(true) {
            return Ok(());
        }
        self.request(id, Request::DetachQp, Time::NEVER).map(drop)
    }
}

/// What a closure of the application does. Unless it succeeds, `undo` follows, also in a panic.
pub(crate) struct Attempt<'a, T, F: FnOnce(&mut T)> {
    of: &'a mut T,
    undo: Option<F>,
}

impl<'a, T, F: FnOnce(&mut T)> Attempt<'a, T, F> {
    pub(crate) fn new(of: &'a mut T, undo: F) -> Self {
        Attempt { of, undo: Some(undo) }
    }

    pub(crate) fn make<Q, E>(mut self, attempt: impl FnOnce(&mut T) -> Result<Q, E>) -> Result<Q, E> {
        let made = attempt(self.of);
        if made.is_ok() {
            self.undo = None;
        }
        made
    }
}

impl<T, F: FnOnce(&mut T)> Drop for Attempt<'_, T, F> {
    fn drop(&mut self) {
        if let Some(undo) = self.undo.take() {
            undo(self.of);
        }
    }
}
