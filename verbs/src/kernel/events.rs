//! Reads events, finds their ids, and moves the QPs of the ids to the states that the events require.

use cmid_proto::{ChannelKey, CmEvent, Errno, GroupKey, IdKey, PortSpace, RawEvent, ReceivedParam};

use crate::contents::{Contents, contents};
use crate::kernel::abi::offset;
use crate::kernel::answer::Answer;
use crate::kernel::calls::Id;
use crate::kernel::channel::{Channel, ChannelFd, Scratch};
use crate::kernel::device::KernelCm;
use crate::kernel::location::{Depths, DeviceBinding, Location};
use crate::kernel::qp::LIBRARY_ERROR;
use crate::kernel::transport::Transports;

/// An event that is reported, with what the kernel's answer does not say of it.
#[derive(Clone, Copy)]
pub(super) struct Reported {
    pub(super) id: IdKey,
    pub(super) listener: Option<IdKey>,
    /// Differs from the kernel's type on an id with a QP: `ESTABLISHED` for a connection that is completed here.
    pub(super) kind: CmEvent,
    pub(super) status: i32,
    pub(super) group: Option<GroupKey>,
}

impl Id {
    /// The id of a request, on this device.
    fn of_request(event: &Answer<'_>, fd: ChannelFd, space: PortSpace, device: Option<Location>) -> Self {
        let mut id = Id::new(event.handle(), None, fd, space);
        if !id.datagrams {
            let param = event.conn();
            id.requested =
                Depths { responder_resources: param.responder_resources, initiator_depth: param.initiator_depth };
        }
        id.remote_ece = event.ece();
        id.resolved(device);
        id
    }

    /// Handles an event that is not of a request or a membership. Returns the type and the status that are reported; `None`
    /// if it is not reported.
    ///
    /// As librdmacm does, it queries the kernel about an id that is resolved. If the device was removed before the event is
    /// read, the query fails, and the lookup with it.
    fn happened(
        &mut self,
        event: &Answer<'_>,
        scratch: &mut Scratch,
        transports: &Transports,
    ) -> Option<(CmEvent, i32)> {
        let kind = event.kind();
        match kind {
            CmEvent::Rejected | CmEvent::Disconnected if self.connect_error => return None,
            CmEvent::AddrResolved => match self.fd.device_of(self.handle, &mut scratch.place) {
                Ok(device) => self.resolved(device),
                Err(_) => return Some((CmEvent::AddrError, LIBRARY_ERROR)),
            },
            CmEvent::RouteResolved if self.is_on_iwarp(transports) => {}
            CmEvent::RouteResolved => {
                if self.fd.device_of(self.handle, &mut scratch.place).is_err() {
                    return Some((CmEvent::RouteError, LIBRARY_ERROR));
                }
            }
            CmEvent::ConnectResponse if self.qp.is_some() => {
                return Some(match self.complete(scratch, event.ece()) {
                    Ok(()) => (CmEvent::Established, 0),
                    Err(incomplete) => (CmEvent::ConnectError, incomplete.status()),
                });
            }
            CmEvent::ConnectResponse => self.remote_ece = event.ece(),
            CmEvent::Rejected => self.qp.iter().for_each(|qp| qp.fail()),
            CmEvent::Established => self.qp.iter().for_each(|qp| qp.note_depth(event.conn().responder_resources)),
            CmEvent::AddrError
            | CmEvent::RouteError
            | CmEvent::ConnectRequest
            | CmEvent::ConnectError
            | CmEvent::Unreachable
            | CmEvent::Disconnected
            | CmEvent::DeviceRemoval
            | CmEvent::MulticastJoin
            | CmEvent::MulticastError
            | CmEvent::AddrChange
            | CmEvent::TimewaitExit
            | CmEvent::AddrinfoResolved
            | CmEvent::AddrinfoError
            | CmEvent::User
            | CmEvent::Internal
            | CmEvent::Unknown(_) => {}
        }
        Some((kind, event.status()))
    }

    /// Whether its device has no path records, which librdmacm queries with ROUTE_RESOLVED on the others.
    fn is_on_iwarp(&self, transports: &Transports) -> bool {
        let DeviceBinding::At(location) = &self.binding else { return false };
        transports.is_iwarp(location)
    }
}

/// Adds the destination and the private data of an event of a datagram id or a group.
#[cold]
fn add_datagram<'a>(raw: &mut RawEvent<&'a [u8]>, event: &Answer<'a>) {
    raw.datagram = matches!(raw.kind, CmEvent::Established | CmEvent::MulticastJoin).then(|| event.datagram());
    // A group's event has the context of the join in place of private data.
    raw.private_data = if raw.kind.is_of_group() { &[] } else { event.ud_private() };
}

impl KernelCm {
    /// Stores the id of the request that was read last.
    fn requested(&mut self, on: ChannelKey, child: IdKey) -> Option<Reported> {
        let found = self.known_listener(on, Answer(&self.answer).uid());
        let event = Answer(&self.answer);
        let listener = found.and_then(|key| self.tables.id(key).ok());
        let (space, before) = listener.map_or((PortSpace::Tcp, None), |id| (id.space, id.came_from));
        let handle = event.handle();
        let fd = self.tables.channel(on).ok()?.fd();
        // The kernel moves an unread request with its listener, but not the new id. `EINVAL`: the new id is already on
        // this channel.
        if let Some(before) = before.and_then(|before| self.tables.channel(before).ok()).map(Channel::fd) {
            if !matches!(fd.take(handle, before), Ok(()) | Err(Errno::EINVAL)) {
                // It is not known which of the channels it is on. If both destroys fail, it stays until its channel is
                // closed.
                let _ = before.destroy(handle).or_else(|_| fd.destroy(handle));
                return None;
            }
        }
        let Some(listener) = found else {
            // The request cannot be answered. If the destroy fails, the id stays until its channel is closed.
            let _ = fd.destroy(handle);
            return None;
        };
        // As in librdmacm, a request is not reported once its device is removed.
        let Ok(device) = fd.device_of(handle, &mut self.scratch.place) else {
            let _ = fd.destroy(handle);
            return None;
        };
        self.tables.insert(child, on, Id::of_request(&event, fd, space, device)).ok()?;
        let (kind, status) = (CmEvent::ConnectRequest, event.status());
        Some(Reported { id: child, listener: Some(listener), kind, status, group: None })
    }

    /// Returns the id and the type of the event that was read last, which is not a request; `None` if it is not
    /// reported.
    fn reported(&mut self, on: ChannelKey, kind: CmEvent) -> Option<Reported> {
        if kind.is_of_group() {
            return self.of_membership(on);
        }
        let event = Answer(&self.answer);
        let id = self.known(on, event.uid(), event.handle())?;
        let KernelCm { tables, answer, scratch, transports, .. } = self;
        let (kind, status) = tables.id_mut(id).ok()?.happened(&Answer(answer), scratch, transports)?;
        Some(Reported { id, listener: None, kind, status, group: None })
    }

    /// Returns the event that was read last.
    fn raw(&self, reported: Reported) -> RawEvent<&[u8]> {
        let (event, Reported { id, listener, kind, status, group }) = (Answer(&self.answer), reported);
        let mut raw = RawEvent { listener, status, group, ..RawEvent::new(id, kind) };
        match contents(kind) {
            Contents::Nothing => {}
            Contents::Argument => raw.private_data = event.argument(),
            Contents::Parameters if !self.is_datagram(id) => {
                raw.param = ReceivedParam(event.conn());
                raw.private_data = event.conn_private();
            }
            Contents::Parameters | Contents::Group => add_datagram(&mut raw, &event),
        }
        raw
    }

    /// Reads one event and returns its type.
    fn read(&mut self, on: ChannelKey) -> Result<CmEvent, Errno> {
        // An older kernel writes less; the rest stays zero.
        self.answer[offset::EVENT_LEN_OLD..].fill(0);
        self.tables.channel(on)?.fd().event(&mut self.answer)?;
        Ok(Answer(&self.answer).kind())
    }

    /// Reads the next event, as [`Device::fetch`](cmid_proto::Device::fetch).
    pub(super) fn next_event(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        // Reserves a slot before any read, so that a request is not lost for lack of one.
        self.tables.make_room_for_id(child)?;
        // Any number of events that are not reported may precede: each read takes one from the kernel's queue, which the
        // backlogs limit.
        // Ends: each event that is not reported is one of an id that the application has ended, or of a removed device.
        loop {
            let reported = match self.read(on) {
                Ok(CmEvent::ConnectRequest) => self.requested(on, child),
                Ok(kind) => self.reported(on, kind),
                Err(Errno(libc::EAGAIN)) => return Ok(None),
                Err(Errno(libc::EINTR)) => None,
                Err(errno) => return Err(errno),
            };
            if let Some(reported) = reported {
                if reported.kind == CmEvent::DeviceRemoval {
                    self.note_removal(reported.id);
                }
                return Ok(Some(self.raw(reported)));
            }
        }
    }

    /// Records that the device of an id is gone.
    fn note_removal(&mut self, id: IdKey) {
        self.transports.removed();
        let Ok(id) = self.tables.id(id) else { return };
        id.qp.iter().for_each(|qp| qp.note_removal());
        if let DeviceBinding::At(location) = id.binding {
            self.limits.removed(location);
        }
    }
}
