//! A member of the multicast group. It joins again after a failure.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cmid_epoll::proto::datapath::{DataPath, To};
use cmid_epoll::proto::{
    self, Acks, ChannelKey, CmEvent, Drive, Errno, Event, EventKind, IdKey, Poller, PortSpace, Time,
};

use crate::error::Error;
use crate::port::{Port, PortError};
use crate::wire::Bytes;

/// The time limit of a join.
const LIMIT: Duration = Duration::from_secs(10);

/// The pause after a failed join.
const PAUSE: Duration = Duration::from_millis(500);

/// The kind of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Sends only.
    Sender,
    /// Receives.
    Receiver,
}

/// The member.
pub struct Group<D: DataPath> {
    channel: ChannelKey,
    id: IdKey,
    port: Port<D>,
    address: IpAddr,
    membership: Membership,
    join: Join<D::Ah>,
}

enum Join<A> {
    /// The time of the next join.
    Failed {
        until: Time,
    },
    Joining,
    Joined {
        ah: A,
        qp_num: u32,
        qkey: u32,
    },
}

impl<D: DataPath> std::fmt::Debug for Group<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("address", &self.address).field("id", &self.id).finish_non_exhaustive()
    }
}

impl<D: DataPath> Group<D> {
    /// Starts to join the group `address` from the device of the local address `local`.
    ///
    /// # Errors
    /// [`Error::Local`] or [`Error::Group`].
    pub fn join<P: Poller<D>>(
        drive: &mut Drive<D, P>,
        local: IpAddr,
        address: IpAddr,
        membership: Membership,
    ) -> Result<Self, Error> {
        if !address.is_multicast() {
            return Err(Error::Group { address, errno: Errno::EINVAL });
        }
        let channel = drive.open_channel(Acks::OnDelivery)?;
        let id = drive.create_id(Some(channel), PortSpace::Udp)?;
        drive.bind(id, SocketAddr::new(local, 0)).map_err(|error| Error::local(local, error))?;
        // A wildcard address can be bound, but selects no device.
        let port = drive.attach_qp(id, |device, attaching| Port::<D>::open_datagram(device, attaching));
        let port = port.map_err(|error| match error {
            proto::Error::Refused(_) => Error::local(local, error),
            proto::Error::Failed(_) | proto::Error::Fault(_) => error.into(),
        })?;
        let join = Join::Failed { until: Time::ZERO };
        let mut group = Group { channel, id, port, address, membership, join };
        group.start(drive)?;
        Ok(group)
    }

    fn start<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error> {
        let (to, deadline) = (SocketAddr::new(self.address, 0), drive.within(LIMIT));
        let key = drive.join(self.id, to, self.membership == Membership::Sender, deadline);
        // The key is not stored: events contain it.
        key.map_err(|error| Error::Group { address: self.address, errno: error.errno() })?;
        self.join = Join::Joining;
        Ok(())
    }

    /// Whether it is a member.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        matches!(self.join, Join::Joined { .. })
    }

    /// Returns its QP.
    pub fn port(&mut self) -> &mut Port<D> {
        &mut self.port
    }

    /// Sends a datagram to the group. Sends nothing while it is not a member, or if its send queue is full. Receivers
    /// then request a replay, as for a lost datagram.
    ///
    /// # Errors
    /// The error of the post.
    #[inline]
    pub fn send(&mut self, bytes: &Bytes) -> Result<(), PortError> {
        let Join::Joined { ah, qp_num, qkey } = &self.join else { return Ok(()) };
        match self.port.send_to(bytes, To { ah, qp_num: *qp_num, qkey: *qkey }) {
            Ok(()) | Err(Errno::ENOMEM) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Handles all events.
    ///
    /// # Errors
    /// [`Error::DeviceRemoved`], and errors of the device.
    pub fn take_events<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error> {
        while let Some(event) = drive.next_event(self.channel) {
            self.take_event(drive, &event)?;
        }
        Ok(())
    }

    fn take_event<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>, event: &Event) -> Result<(), Error> {
        if event.cm() == Some(CmEvent::DeviceRemoval) {
            return Err(Error::DeviceRemoved);
        }
        let Some(key) = event.group else { return Ok(()) };
        match (event.kind, &event.datagram) {
            (EventKind::Cm(CmEvent::MulticastJoin), Some(to)) => {
                let ah = self.port.address_handle(&to.path).map_err(Errno::from)?;
                self.join = Join::Joined { ah, qp_num: to.qp_num, qkey: to.qkey };
            }
            // A failed membership must be left too.
            (EventKind::Cm(CmEvent::MulticastError) | EventKind::DeadlinePassed(_), _) => {
                let _left = drive.leave(self.id, key)?;
                self.join = Join::Failed { until: drive.within(PAUSE) };
            }
            (_, _) => {}
        }
        Ok(())
    }

    /// Joins again after a pause.
    ///
    /// # Errors
    /// [`Error::Group`].
    pub fn handle_timeout<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) -> Result<(), Error> {
        match self.join {
            Join::Failed { until } if until <= drive.now() => self.start(drive),
            Join::Failed { .. } | Join::Joining | Join::Joined { .. } => Ok(()),
        }
    }
}
