//! Reads events, finds their ids, and performs their actions on an id with a QP.

use cmid_proto::{ChannelKey, CmEvent, Errno, IdKey, PortSpace, RawEvent, ReceivedParam};

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
}

impl KernelCm {
    /// Stores the id of the request that was read last. Returns its listener.
    fn file_child(&mut self, on: ChannelKey, child: IdKey) -> Option<IdKey> {
        let event = Answer(&self.answer);
        let listener = self.known(on, event.uid());
        let space = listener.and_then(|key| self.ids.get(key)).map_or(PortSpace::Tcp, |id| id.space);
        let mut new = Id::new(event.handle(), None, on, space);
        let before = listener.and_then(|key| self.ids.get(key)?.came_from).and_then(|before| self.channels.get(before));
        let channel = self.channels.get(on)?;
        // The kernel moves an unread request with its listener, but not the new id. `EINVAL`: the new id is here
        // already.
        if let Some(before) = before
            && !matches!(channel.take(event.handle(), before), Ok(()) | Err(Errno::EINVAL))
        {
            // Which of the channels it is on is not known. If both destroys fail, it stays until its channel is closed.
            let _ = new.destroy(before).or_else(|_| new.destroy(channel));
            return None;
        }
        let channel = self.channels.get_mut(on)?;
        if listener.is_none() {
            // The request cannot be answered. If the destroy fails, the id stays until its channel is closed.
            let _ = new.destroy(channel);
            return None;
        }
        if !new.datagrams {
            let param = event.conn();
            new.requested =
                Depths { responder_resources: param.responder_resources, initiator_depth: param.initiator_depth };
        }
        new.remote_ece = event.ece();
        new.resolved();
        self.ids.insert(child, new).ok()?;
        channel.ids += 1;
        listener
    }

    /// The id and the type of the event that was read last; `None` if it is not reported.
    fn reported(&mut self, on: ChannelKey, child: IdKey) -> Option<Reported> {
        let event = Answer(&self.answer);
        let (kind, status) = (event.kind(), event.status());
        if kind == CmEvent::ConnectRequest {
            return self.file_child(on, child).map(|listener| Reported {
                id: child,
                listener: Some(listener),
                kind,
                status,
            });
        }
        let key = self.known(on, event.uid())?;
        let (kind, status) = match kind {
            CmEvent::ConnectResponse => self.answered(key),
            CmEvent::MulticastJoin => self.joined(key),
            CmEvent::Rejected | CmEvent::Disconnected if self.ids.get(key)?.connect_error => return None,
            CmEvent::Rejected => {
                self.ids.get(key)?.qp.iter().for_each(|qp| qp.stop());
                (kind, status)
            }
            CmEvent::AddrResolved => {
                self.ids.get_mut(key)?.resolved();
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
        Some(Reported { id: key, listener: None, kind, status })
    }

    /// Handles a CONNECT_RESPONSE: completes a connection that has a QP.
    fn answered(&mut self, key: IdKey) -> (CmEvent, i32) {
        let event = Answer(&self.answer);
        let (status, ece) = (event.status(), event.ece());
        let Some(id) = self.ids.get_mut(key) else { return (CmEvent::ConnectResponse, status) };
        let Some(channel) = self.channels.get(id.channel) else { return (CmEvent::ConnectResponse, status) };
        if id.qp.is_none() {
            id.remote_ece = ece;
            return (CmEvent::ConnectResponse, status);
        }
        match id.complete(channel, &mut self.scratch, ece) {
            Ok(()) => (CmEvent::Established, 0),
            // librdmacm reports the same.
            Err(_) => (CmEvent::ConnectError, -1),
        }
    }

    /// Handles a MULTICAST_JOIN: attaches the QP of the id to the group.
    #[cold]
    fn joined(&mut self, key: IdKey) -> (CmEvent, i32) {
        let event = Answer(&self.answer);
        let attached = self.ids.get_mut(key).map(|id| id.joined(event.handle(), Group::at(&event.datagram().path)));
        // librdmacm reports the same, whatever the status of the event.
        if attached == Some(Ok(())) { (CmEvent::MulticastJoin, 0) } else { (CmEvent::MulticastError, -1) }
    }

    fn raw(&self, reported: Reported) -> RawEvent<&[u8]> {
        let Reported { id, listener, kind, status } = reported;
        let event = Answer(&self.answer);
        let mut raw = RawEvent { listener, status, ..RawEvent::new(id, kind) };
        match contents(kind) {
            Contents::Nothing => {}
            Contents::Group => {
                let groups = self.ids.get(id).map_or(&[][..], |id| &id.groups);
                raw.group = groups.iter().find(|group| group.handle == event.handle()).map(|group| group.key);
                raw.datagram = (kind == CmEvent::MulticastJoin).then(|| event.datagram());
            }
            Contents::Parameters if self.ids.get(id).is_some_and(|id| id.datagrams) => {
                raw.datagram = (kind == CmEvent::Established).then(|| event.datagram());
                raw.private_data = event.ud_private();
            }
            Contents::Parameters => {
                raw.param = ReceivedParam(event.conn());
                raw.private_data = event.conn_private();
            }
        }
        raw
    }

    /// Reads the next event. `removed` gets the device of a DEVICE_REMOVAL, if it is known.
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
            if let Some(reported) = self.reported(on, child) {
                if reported.kind == CmEvent::DeviceRemoval
                    && let Some(location) = self.location_of(reported.id)
                {
                    removed(location);
                }
                return Ok(Some(self.raw(reported)));
            }
        }
        Err(Errno::EIO)
    }
}
