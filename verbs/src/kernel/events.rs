//! Reads events, finds their ids, and performs their actions on an id with a QP.

use cmid_proto::{ChannelKey, CmEvent, Errno, IdKey, Outcome, PortSpace, RawEvent, ReceivedParam};

use crate::contents::{Contents, contents};
use crate::forgotten::Tables as _;
use crate::kernel::abi::offset;
use crate::kernel::answer::Answer;
use crate::kernel::calls::Id;
use crate::kernel::device::KernelCm;
use crate::kernel::location::{Depths, Location};
use crate::kernel::queue_pair::Group;

/// The maximum number of events per fetch that are not reported.
const STRAY_MAX: usize = 16;

/// The id and the type of an event.
struct Reported {
    id: IdKey,
    listener: Option<IdKey>,
    /// Differs from the kernel's type on an id with a QP: `ESTABLISHED` for a connection that is completed here.
    kind: CmEvent,
    status: i32,
    /// Whether the id is for datagrams.
    datagrams: bool,
}

impl KernelCm {
    /// Stores the id of the request that was read last.
    #[inline(never)]
    fn requested(&mut self, on: ChannelKey, child: IdKey) -> Option<Reported> {
        let event = Answer(&self.answer);
        let found = self.known(on, event.uid());
        let listener = found.and_then(|key| self.ids.get(key));
        let (space, before) = listener.map_or((PortSpace::Tcp, None), |id| (id.space, id.came_from));
        let mut new = Id::new(event.handle(), None, on, space);
        let channel = self.channels.get(on)?;
        // The kernel moves an unread request with its listener, but not the new id. `EINVAL`: the new id is here
        // already.
        if let Some(before) = before.and_then(|before| self.channels.get(before)) {
            if !matches!(channel.take(event.handle(), before), Ok(()) | Err(Errno::EINVAL)) {
                // Which of the channels it is on is not known. If both destroys fail, it stays until its channel is closed.
                let _ = new.destroy(before).or_else(|_| new.destroy(channel));
                return None;
            }
        }
        let channel = self.channels.get_mut(on)?;
        let Some(listener) = found else {
            // The request cannot be answered. If the destroy fails, the id stays until its channel is closed.
            let _ = new.destroy(channel);
            return None;
        };
        let datagrams = new.datagrams;
        if !datagrams {
            let param = event.conn();
            new.requested =
                Depths { responder_resources: param.responder_resources, initiator_depth: param.initiator_depth };
        }
        new.remote_ece = event.ece();
        new.resolved();
        self.ids.insert(child, new).ok()?;
        channel.ids += 1;
        let (kind, status) = (CmEvent::ConnectRequest, event.status());
        Some(Reported { id: child, listener: Some(listener), kind, status, datagrams })
    }

    /// The id and the type of the event that was read last, which is not a request; `None` if it is not reported.
    #[inline(always)]
    fn reported(&mut self, on: ChannelKey) -> Option<Reported> {
        let event = Answer(&self.answer);
        let (kind, status) = (event.kind(), event.status());
        let key = self.known(on, event.uid())?;
        let id = self.ids.get_mut(key)?;
        let datagrams = id.datagrams;
        let (kind, status) = match kind {
            // As librdmacm reports it.
            CmEvent::ConnectResponse if id.qp.is_some() => match self.answered(key) {
                Ok(()) => (CmEvent::Established, 0),
                Err(_) => (CmEvent::ConnectError, -1),
            },
            CmEvent::ConnectResponse => {
                id.remote_ece = event.ece();
                (kind, status)
            }
            // Whatever the status of the event.
            CmEvent::MulticastJoin => match self.joined(key) {
                Ok(()) => (CmEvent::MulticastJoin, 0),
                Err(_) => (CmEvent::MulticastError, -1),
            },
            CmEvent::Rejected | CmEvent::Disconnected if id.connect_error => return None,
            CmEvent::Rejected => {
                id.qp.iter().for_each(|qp| qp.stop());
                (kind, status)
            }
            CmEvent::AddrResolved => {
                id.resolved();
                (kind, status)
            }
            CmEvent::AddrError
            | CmEvent::RouteResolved
            | CmEvent::RouteError
            | CmEvent::ConnectRequest
            | CmEvent::ConnectError
            | CmEvent::Unreachable
            | CmEvent::Established
            | CmEvent::Disconnected
            | CmEvent::DeviceRemoval
            | CmEvent::MulticastError
            | CmEvent::AddrChange
            | CmEvent::TimewaitExit
            | CmEvent::AddrinfoResolved
            | CmEvent::AddrinfoError
            | CmEvent::User
            | CmEvent::Internal
            | CmEvent::Unknown(_) => (kind, status),
        };
        Some(Reported { id: key, listener: None, kind, status, datagrams })
    }

    /// Handles a CONNECT_RESPONSE on an id with a QP: completes the connection.
    #[inline(never)]
    fn answered(&mut self, key: IdKey) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        let channel = self.channels.get(id.channel).ok_or(Errno::EBADF)?;
        id.complete(channel, &mut self.scratch, Answer(&self.answer).ece())
    }

    /// Handles a MULTICAST_JOIN: attaches the QP of the id to the group.
    #[cold]
    fn joined(&mut self, key: IdKey) -> Outcome {
        let event = Answer(&self.answer);
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        id.joined(event.handle(), Group::at(&event.datagram().path))
    }

    /// Returns the event that was read last.
    #[inline(always)]
    fn raw(&self, reported: Reported) -> Option<RawEvent<&[u8]>> {
        let Reported { id, listener, kind, status, datagrams } = reported;
        match contents(kind) {
            Contents::Nothing => {
                let (param, datagram, group, private_data) = (ReceivedParam::default(), None, None, &[][..]);
                Some(RawEvent { id, listener, kind, status, param, datagram, group, private_data })
            }
            Contents::Parameters if !datagrams => {
                let event = Answer(&self.answer);
                let (param, private_data) = (ReceivedParam(event.conn()), event.conn_private());
                let (datagram, group) = (None, None);
                Some(RawEvent { id, listener, kind, status, param, datagram, group, private_data })
            }
            Contents::Parameters | Contents::Group => self.raw_of_datagrams(reported),
        }
    }

    #[inline(never)]
    fn raw_of_request(&self, reported: Reported) -> Option<RawEvent<&[u8]>> {
        self.raw(reported)
    }

    #[cold]
    fn raw_of_datagrams(&self, reported: Reported) -> Option<RawEvent<&[u8]>> {
        let Reported { id, listener, kind, status, .. } = reported;
        let event = Answer(&self.answer);
        let raw = RawEvent { listener, status, ..RawEvent::new(id, kind) };
        Some(match contents(kind) {
            Contents::Nothing => raw,
            Contents::Group => {
                let groups = self.ids.get(id).map_or(&[][..], |id| &id.groups);
                let group = groups.iter().find(|group| group.handle == event.handle()).map(|group| group.key);
                let datagram = (kind == CmEvent::MulticastJoin).then(|| event.datagram());
                RawEvent { datagram, group, ..raw }
            }
            Contents::Parameters => {
                let datagram = (kind == CmEvent::Established).then(|| event.datagram());
                RawEvent { datagram, private_data: event.ud_private(), ..raw }
            }
        })
    }

    /// Reads the next event. `removed` gets the device of a DEVICE_REMOVAL, if it is known.
    #[inline(always)]
    pub(crate) fn fetch_noting(
        &mut self,
        on: ChannelKey,
        child: IdKey,
        removed: impl FnOnce(Location),
    ) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        // Reserves a slot first, so that a request is not lost for lack of one.
        self.make_room_for_id(child)?;
        for _ in 0..STRAY_MAX {
            // An older kernel writes less; the rest stays zero.
            self.answer[offset::EVENT_LEN_OLD..].fill(0);
            match self.channels.get(on).ok_or(Errno::EBADF)?.event(&mut self.answer) {
                Ok(()) => {}
                Err(Errno(libc::EAGAIN)) => return Ok(None),
                Err(Errno(libc::EINTR)) => continue,
                Err(errno) => return Err(errno),
            }
            if Answer(&self.answer).kind() == CmEvent::ConnectRequest {
                match self.requested(on, child) {
                    Some(reported) => return Ok(self.raw_of_request(reported)),
                    None => continue,
                }
            }
            if let Some(reported) = self.reported(on) {
                if reported.kind == CmEvent::DeviceRemoval {
                    if let Some(location) = self.location_of(reported.id) {
                        removed(location);
                    }
                }
                return Ok(self.raw(reported));
            }
        }
        Err(Errno::EIO)
    }
}
