//! An established connection between two drivers.

use core::fmt;
use core::time::Duration;

use super::{End, Session};
use crate::datapath::DataPath;
use crate::device::Device;
use crate::drive::{Drive, Observer, Poller, ReleasedId};
use crate::error::{Error, Refused};
use crate::error_with::ErrorWith;
use crate::handshake::Connected;
use crate::handshake::incoming::{adopt_on, to_sync};
use crate::key::ChannelKey;
use crate::refuse_reason::RefuseReason;
use crate::request_kind::RequestKind;

/// A connection between two drivers: its id, and the QP, the CQ and what else `attach` has returned. `H` is the handle of the
/// device. Dropping it ends the connection.
#[must_use = "dropping it ends the connection"]
pub struct ReleasedSession<Q, H> {
    // Dropped in this order: the QP ends before its id.
    connected: Connected<Q>,
    released_id: ReleasedId<H>,
    limit: Duration,
    has_failed: bool,
    end: End,
}

impl<Q> Session<Q> {
    /// Releases a connection for a driver on another thread, also one that ends: puts its id into synchronous mode, and
    /// releases it. Work requests go on, and what has completed waits in the CQ, whose descriptor is not to be watched here
    /// any more.
    ///
    /// # Errors
    /// The session and the reason. It is as before if it is not connected yet or over, if acks are owed, or if the migration
    /// has failed, for lack of descriptors for example. It is over if the device has failed to release the id.
    pub fn release<D: DataPath, P: Poller<D>, O: Observer>(
        mut self,
        drive: &mut Drive<D, P, O>,
    ) -> Result<ReleasedSession<Q, D::Handle>, ErrorWith<Self, Error>> {
        let Session { id, limit, has_failed, end, .. } = self;
        let owes = drive.core().id_info(id).is_some_and(|it| it.owed > 0);
        let Some(connected) = self.connected.take_if(|_| end != End::Over && !owes) else {
            let (request, reason) =
                (RequestKind::Release, if owes { RefuseReason::OwesAcks } else { RefuseReason::WrongState });
            let refused = match drive.core().state(id) {
                Some(state) => Refused::Request { id, request, state, reason },
                None => Refused::NoSuchId { id, request },
            };
            return Err(ErrorWith::new(self, refused));
        };
        // As in `next_completion`: a migration drops the result.
        let is_answered = end == End::Begun && drive.core().sync_result(id).is_some();
        let end = if is_answered { End::Both } else { end };
        if let Err(error) = to_sync(drive, id) {
            self.connected = Some(connected);
            return Err(ErrorWith::new(self, error));
        }
        match drive.release(id) {
            Ok(released_id) => Ok(ReleasedSession { connected, released_id, limit, has_failed, end }),
            Err(error) => {
                self.connected = Some(connected);
                // Reports the error of the release and not that of the destroy.
                let _ = self.cancel(drive);
                Err(ErrorWith::new(self, error))
            }
        }
    }
}

impl<Q, H> ReleasedSession<Q, H> {
    /// Returns what `attach` has returned.
    pub fn attached(&mut self) -> &mut Q {
        &mut self.connected.attached
    }

    /// Goes on with the connection in a driver, on a channel. Its id has a new key, and its undelivered events follow. Watch
    /// the descriptor of the CQ here, and take completions until there is none. Both drivers must count time from the same
    /// epoch. If their devices are [siblings](crate::Pollable::sibling), the PD and the CQ of the connection serve other QPs
    /// here too.
    ///
    /// # Errors
    /// What `attach` has returned, with the error of [`Drive::adopt`] or [`Drive::migrate`]. The connection has ended.
    pub fn adopt<D: Device<Handle = H>, P: Poller<D>, O: Observer>(
        self,
        drive: &mut Drive<D, P, O>,
        channel: ChannelKey,
    ) -> Result<Session<Q>, ErrorWith<Q, Error>> {
        let ReleasedSession { connected, released_id, limit, has_failed, end } = self;
        match adopt_on(drive, released_id, Some(channel)) {
            Ok(id) => {
                let connected = Some(Connected { id, ..connected });
                Ok(Session { id, opening: None, connected, limit, has_failed, end })
            }
            Err(error) => Err(ErrorWith::new(connected.attached, error)),
        }
    }
}

/// Without what `attach` has returned.
impl<Q, H> fmt::Debug for ReleasedSession<Q, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleasedSession").field("limit", &self.limit).finish_non_exhaustive()
    }
}
