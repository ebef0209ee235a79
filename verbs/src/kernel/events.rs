//! Reads events, finds their ids, and moves the QPs of the ids to the states that the events require.

use cmid_proto::{ChannelKey, CmEvent, Errno, GroupKey, IdKey, PortSpace, RawEvent, ReceivedParam, Transport};

use crate::contents::{Contents, contents};
use crate::forgotten::Tables as _;
use crate::kernel::abi::offset;
use crate::kernel::answer::Answer;
use crate::kernel::calls::Id;
use crate::kernel::channel::{Channel, ChannelFd, Scratch};
use crate::kernel::device::KernelCm;
use crate::kernel::location::{Depths, DeviceBinding, Location};
use crate::kernel::qp::LIBRARY_ERROR;
use crate::kernel::transport::Transports;

/// The id and the type of an event.
#[derive(Clone, Copy)]
pub(super) struct Reported {
    id: IdKey,
    listener: Option<IdKey>,
    /// Differs from the kernel's type on an id with a QP: `ESTABLISHED` for a connection that is completed here.
    kind: CmEvent,
    status: i32,
    /// Whether the id is for datagrams.
    datagrams: bool,
    group: Option<GroupKey>,
}

impl Reported {
    /// An event of a connected id.
    pub(super) fn of(id: IdKey, kind: CmEvent, status: i32) -> Self {
        Reported { id, listener: None, kind, status, datagrams: false, group: None }
    }

    pub(super) fn in_group(self, datagrams: bool, group: GroupKey) -> Self {
        Reported { datagrams, group: Some(group), ..self }
    }
}

impl Id {
    /// The id of a request, on this device.
    fn of_request(event: &Answer<'_>, at: (ChannelKey, ChannelFd), space: PortSpace, device: Option<Location>) -> Self {
        let mut id = Id::new(event.handle(), None, at, space);
        if !id.datagrams {
            let param = event.conn();
            id.requested =
                Depths { responder_resources: param.responder_resources, initiator_depth: param.initiator_depth };
        }
        id.remote_ece = event.ece();
        id.resolved(device);
        id
    }

    /// Handles an event; `None` if it is not reported.
    ///
    /// As librdmacm does, it queries the kernel about an id that is resolved. If the device was removed before the event is
    /// read, the query fails, and the lookup with it.
    fn happened(
        &mut self,
        key: IdKey,
        kind: CmEvent,
        status: i32,
        with: (&mut Scratch, &Transports),
    ) -> Option<Reported> {
        let (scratch, transports) = with;
        let failed = |kind| Some(Reported { datagrams: self.datagrams, ..Reported::of(key, kind, LIBRARY_ERROR) });
        match kind {
            CmEvent::Rejected | CmEvent::Disconnected if self.connect_error => return None,
            CmEvent::AddrResolved => match self.fd.device_of(self.handle, &mut scratch.place) {
                Ok(device) => self.resolved(device),
                Err(_) => return failed(CmEvent::AddrError),
            },
            CmEvent::RouteResolved if self.is_on_iwarp(transports) => {}
            CmEvent::RouteResolved => {
                if self.fd.device_of(self.handle, &mut scratch.place).is_err() {
                    return failed(CmEvent::RouteError);
                }
            }
            CmEvent::Rejected => self.qp.iter().for_each(|qp| qp.stop()),
            CmEvent::AddrError
            | CmEvent::RouteError
            | CmEvent::ConnectRequest
            | CmEvent::ConnectResponse
            | CmEvent::ConnectError
            | CmEvent::Unreachable
            | CmEvent::Established
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
        Some(Reported { datagrams: self.datagrams, ..Reported::of(key, kind, status) })
    }

    /// Whether its device has no path records, which librdmacm queries with ROUTE_RESOLVED on the others.
    fn is_on_iwarp(&self, transports: &Transports) -> bool {
        let DeviceBinding::At(location) = &self.binding else { return false };
        transports.known(location) == Some(Transport::Iwarp)
    }

    /// Handles a CONNECT_RESPONSE: on an id with a QP, completes the connection. Returns the type that librdmacm reports,
    /// and the status.
    fn answered(&mut self, scratch: &mut Scratch, event: &Answer<'_>) -> (CmEvent, i32) {
        if self.qp.is_none() {
            self.remote_ece = event.ece();
            return (CmEvent::ConnectResponse, event.status());
        }
        match self.complete(scratch, event.ece()) {
            Ok(()) => (CmEvent::Established, 0),
            Err(incomplete) => (CmEvent::ConnectError, incomplete.status()),
        }
    }
}

impl KernelCm {
    /// Stores the id of the request that was read last.
    fn requested(&mut self, on: ChannelKey, child: IdKey) -> Option<Reported> {
        let event = Answer(&self.answer);
        let found = self.known(on, event.uid());
        let listener = found.and_then(|key| self.ids.get(key));
        let (space, before) = listener.map_or((PortSpace::Tcp, None), |id| (id.space, id.came_from));
        let handle = event.handle();
        let fd = self.channels.get(on)?.fd();
        // The kernel moves an unread request with its listener, but not the new id. `EINVAL`: the new id is already on
        // this channel.
        if let Some(before) = before.and_then(|before| self.channels.get(before)).map(Channel::fd) {
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
        let new = Id::of_request(&event, (on, fd), space, device);
        let datagrams = new.datagrams;
        self.ids.insert(child, new).ok()?;
        self.channels.get_mut(on)?.ids += 1;
        let (kind, status) = (CmEvent::ConnectRequest, event.status());
        Some(Reported { id: child, listener: Some(listener), kind, status, datagrams, group: None })
    }

    /// Returns the id and the type of the event that was read last, which is not a request; `None` if it is not
    /// reported.
    fn reported(&mut self, on: ChannelKey, kind: CmEvent) -> Option<Reported> {
        if matches!(kind, CmEvent::MulticastJoin | CmEvent::MulticastError) {
            return self.of_membership(on);
        }
        let key = self.known(on, Answer(&self.answer).uid())?;
        let KernelCm { ids, answer, scratch, transports, .. } = self;
        let (id, event) = (ids.get_mut(key)?, Answer(answer));
        let datagrams = id.datagrams;
        if kind == CmEvent::ConnectResponse {
            let (kind, status) = id.answered(scratch, &event);
            return Some(Reported { datagrams, ..Reported::of(key, kind, status) });
        }
        id.happened(key, kind, event.status(), (scratch, transports))
    }

    /// Returns the event that was read last.
    fn raw(&self, reported: Reported) -> RawEvent<&[u8]> {
        let (event, Reported { id, listener, kind, status, datagrams, group }) = (Answer(&self.answer), reported);
        let raw = RawEvent { listener, status, ..RawEvent::new(id, kind) };
        match contents(kind) {
            Contents::Nothing => raw,
            Contents::Argument => RawEvent { private_data: event.argument(), ..raw },
            Contents::Group => {
                let datagram = (kind == CmEvent::MulticastJoin).then(|| event.datagram());
                RawEvent { datagram, group, ..raw }
            }
            Contents::Parameters if datagrams => {
                let datagram = (kind == CmEvent::Established).then(|| event.datagram());
                RawEvent { datagram, private_data: event.ud_private(), ..raw }
            }
            Contents::Parameters => {
                RawEvent { param: ReceivedParam(event.conn()), private_data: event.conn_private(), ..raw }
            }
        }
    }

    /// Reads one event and returns its type.
    fn read(&mut self, on: ChannelKey) -> Result<CmEvent, Errno> {
        // An older kernel writes less; the rest stays zero.
        self.answer[offset::EVENT_LEN_OLD..].fill(0);
        self.channels.get(on).ok_or(Errno::EBADF)?.fd().event(&mut self.answer)?;
        Ok(Answer(&self.answer).kind())
    }

    /// Reads the next event, as [`Device::fetch`](cmid_proto::Device::fetch).
    pub(super) fn next_event(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        // Reserves a slot before any read, so that a request is not lost for lack of one.
        self.make_room_for_id(child)?;
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

    /// Records that the device of an id is gone, if the kernel was queried for it.
    fn note_removal(&self, id: IdKey) {
        if let Some(DeviceBinding::At(location)) = self.ids.get(id).map(|id| id.binding) {
            self.limits.removed(location);
        }
    }
}
