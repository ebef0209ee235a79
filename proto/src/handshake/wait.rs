//! The code that both sides share: an id, and the state that waits for an event.

use super::{Connected, HandshakeError};
use crate::device::Device;
use crate::drive::{Attempt, Drive, Observer, Poller};
use crate::errno::Errno;
use crate::error::{BoxError, Error};
use crate::event::{Datagram, Event, EventKind, ReceivedParam};
use crate::event_result::EventError;
use crate::key::IdKey;
use crate::machine::Progress;
use crate::private_data::PrivateData;
use crate::state::State;
use crate::table::{self, EventColumn, EventRule};
use crate::time::Time;

/// The states after a successful step of a handshake.
const GOES_ON: [State; 5] =
    [State::AddrResolved, State::RouteResolved, State::Responded, State::Connected, State::SidrResolved];

/// A handshake that waits for the event that ends a state of its id.
#[derive(Debug)]
pub(super) struct Wait<Q> {
    pub(super) id: IdKey,
    /// The state that waits; `None` once the handshake is over.
    pub(super) begun: Option<State>,
    pub(super) attached: Option<Q>,
}

impl<Q> Wait<Q> {
    pub(super) fn new(id: IdKey, begun: State) -> Self {
        Wait { id, begun: Some(begun), attached: None }
    }

    /// Acks an event. If the event ends the wait with success, returns the new state and the event.
    pub(super) fn take<D: Device, P: Poller<D>, O: Observer>(
        &mut self,
        drive: &mut Drive<D, P, O>,
        mut event: Event,
    ) -> Result<Option<(State, Event)>, HandshakeError> {
        let acked = event.ack_token.take().map_or(Ok(()), |ack_token| drive.ack(ack_token));
        // The ack of another id's event is refused if that id is gone.
        if event.id != self.id {
            return Ok(None);
        }
        acked.map_err(|refused| self.fail(drive, Error::from(refused)))?;
        let Some(begun) = self.begun else { return Ok(None) };
        let Some(during) = table::operation(begun) else { return Ok(None) };
        match event.kind {
            EventKind::Cm(kind) => match table::event_rule(begun, EventColumn::of(kind)) {
                EventRule::Go(next) if next != begun => {
                    let errno = match event.result_of(during) {
                        Ok(()) if GOES_ON.contains(&next) => return Ok(Some((next, event))),
                        Ok(()) => Errno::EIO,
                        Err(errno) => errno,
                    };
                    Err(self.fail(drive, HandshakeError::Ended { during, error: EventError { errno, event } }))
                }
                // An event that does not end the wait, such as ADDR_CHANGE.
                EventRule::Go(_) | EventRule::Late | EventRule::Fault => Ok(None),
            },
            EventKind::DeadlinePassed(of) if of == during => Err(self.fail(drive, HandshakeError::TimedOut { during })),
            EventKind::DeadlinePassed(_) | EventKind::Migrated | EventKind::Destroyed | EventKind::Left => Ok(None),
        }
    }

    /// Calls the application's closure, which attaches a QP. If it fails or panics, the handshake is over.
    pub(super) fn attach<D: Device, P: Poller<D>, O: Observer, E: Into<BoxError>>(
        &mut self,
        drive: &mut Drive<D, P, O>,
        attach: impl FnOnce(&mut Drive<D, P, O>, IdKey) -> Result<Q, E>,
    ) -> Result<(), HandshakeError> {
        let (id, begun) = (self.id, self.begun.take());
        let attempt = Attempt::new(drive, |drive: &mut Drive<D, P, O>| drive.destroy_after_error(id));
        self.attached = Some(attempt.make(|drive| attach(drive, id)).map_err(HandshakeError::of_attach)?);
        self.begun = begun;
        Ok(())
    }

    /// Synchronous mode: returns the event that ended the request, if it has ended.
    pub(super) fn sync_event<D: Device, P: Poller<D>, O: Observer>(
        &mut self,
        drive: &mut Drive<D, P, O>,
    ) -> Result<Option<Event>, HandshakeError> {
        let Some(during) = self.begun.and_then(table::operation) else { return Ok(None) };
        match (drive.core().sync_result(self.id), drive.core().sync_event(self.id)) {
            (Some(_), Some(event)) => Ok(Some(event)),
            (Some(Err(_)), None) => Err(self.fail(drive, HandshakeError::TimedOut { during })),
            (Some(Ok(())), None) | (None, _) => Ok(None),
        }
    }

    /// Ends the handshake with success, with the peer's parameters and private data.
    pub(super) fn connected(
        &mut self,
        param: ReceivedParam,
        private_data: PrivateData,
        datagram: Option<Datagram>,
    ) -> Option<Connected<Q>> {
        self.begun = None;
        let attached = self.attached.take()?;
        Some(Connected { id: self.id, attached, param, private_data, datagram })
    }

    /// Ends the handshake by an error: destroys the id and drops the attached value.
    pub(super) fn fail<D: Device, P: Poller<D>, O: Observer>(
        &mut self,
        drive: &mut Drive<D, P, O>,
        error: impl Into<HandshakeError>,
    ) -> HandshakeError {
        if self.begun.take().is_some() {
            drive.destroy_after_error(self.id);
            self.attached = None;
        }
        error.into()
    }

    /// Destroys the id if the handshake is not over.
    pub(super) fn cancel<D: Device, P: Poller<D>, O: Observer>(
        &mut self,
        drive: &mut Drive<D, P, O>,
    ) -> Result<Progress, Error> {
        if self.begun.take().is_none() {
            return Ok(Progress::Done);
        }
        let destroyed = drive.destroy(self.id, Time::NEVER);
        self.attached = None;
        destroyed
    }
}
