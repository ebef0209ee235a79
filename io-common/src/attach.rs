//! The closures with which applications attach QPs to connections.

use cmid_proto::datapath::{Attaching, CreateError};
use cmid_proto::handshake::BoxError;
use cmid_proto::{Device, Drive, Ece, Errno, IdKey, Observer, Poller};

/// Sets the options of enhanced connection establishment, then attaches the QP that `attach` creates.
///
/// # Errors
/// A [`cmid_proto::Error`] if a request is refused, or if `attach` fails with a [`CreateError`] or an [`Errno`];
/// another error of `attach` unchanged.
pub fn attach_with<D: Device, P: Poller<D>, O: Observer, Q, E: Into<BoxError>>(
    drive: &mut Drive<D, P, O>,
    id: IdKey,
    ece: Option<Ece>,
    attach: impl FnOnce(&mut D, Attaching<'_>) -> Result<Q, E>,
) -> Result<Q, BoxError> {
    if let Some(ece) = ece {
        drive.set_ece(id, ece)?;
    }
    let mut own = None;
    let made = drive.attach_qp(id, |device, attaching| {
        attach(device, attaching).map_err(|error| {
            of_creation(error.into()).unwrap_or_else(|error| {
                own = Some(error);
                Errno::EIO.into()
            })
        })
    });
    made.map_err(|error| own.unwrap_or_else(|| error.into()))
}

/// The error of a creation, or another one.
fn of_creation(error: BoxError) -> Result<CreateError, BoxError> {
    error.downcast::<CreateError>().map(|error| *error).or_else(|error| Ok((*error.downcast::<Errno>()?).into()))
}
