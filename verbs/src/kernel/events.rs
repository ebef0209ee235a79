//! Reads events, finds their ids, and moves the QPs of the ids to the states that the events require.

use cmid_proto::{
    ChannelKey, CmEvent, Errno, EventSink, GroupKey, IdKey, Outcome, PortSpace, RawEvent, ReceivedParam, Transport,
};

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

/// The result of a read.
type Fetched<'a> = Result<Option<RawEvent<&'a [u8]>>, Errno>;

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
    #[inline(always)]
    pub(super) fn of(id: IdKey, kind: CmEvent, status: i32) -> Self {
        Reported { id, listener: None, kind, status, datagrams: false, group: None }
    }

    pub(super) fn in_group(self, datagrams: bool, group: GroupKey) -> Self {
        Reported { datagrams, group: Some(group), ..self }
    }
}

/// Whether an event of this type creates no id, is of no group, and does not concern the device.
#[inline(always)]
fn is_plain(kind: CmEvent) -> bool {
    match kind {
        CmEvent::AddrResolved
        | CmEvent::AddrError
        | CmEvent::RouteResolved
        | CmEvent::RouteError
        | CmEvent::ConnectResponse
        | CmEvent::ConnectError
        | CmEvent::Unreachable
        | CmEvent::Rejected
        | CmEvent::Established
        | CmEvent::Disconnected
        | CmEvent::AddrChange
        | CmEvent::TimewaitExit => true,
        CmEvent::ConnectRequest
        | CmEvent::DeviceRemoval
        | CmEvent::MulticastJoin
        | CmEvent::MulticastError
        | CmEvent::AddrinfoResolved
        | CmEvent::AddrinfoError
        | CmEvent::User
        | CmEvent::Internal
        | CmEvent::Unknown(_) => false,
    }
}

impl Id {
    /// The id of a request, on this device.
    #[inline(always)]
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
    #[inline(always)]
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
    #[inline(never)]
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
    #[inline(never)]
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
        self.room_for = None;
        self.ids.insert(child, new).ok()?;
        self.channels.get_mut(on)?.ids += 1;
        let (kind, status) = (CmEvent::ConnectRequest, event.status());
        Some(Reported { id: child, listener: Some(listener), kind, status, datagrams, group: None })
    }

    /// As [`requested`](KernelCm::requested), if the listener is filed under the kernel's key, is not for datagrams, and
    /// was not moved after its listen. Returns the listener. Otherwise nothing has changed.
    #[inline(always)]
    fn plain_request(&mut self, on: ChannelKey, child: IdKey) -> Option<IdKey> {
        let KernelCm { ids, room_for, channels, answer, scratch, .. } = self;
        let event = Answer(answer);
        let key = IdKey::from_bits(event.uid())?;
        let id = ids.get_filed(key)?;
        if id.uid != Some(key) || id.channel != on || id.datagrams || id.came_from.is_some() {
            return None;
        }
        let (fd, space) = (id.fd, id.space);
        let channel = channels.get_filed_mut(on)?;
        let device = fd.device_of(event.handle(), &mut scratch.place).ok()?;
        *room_for = None;
        ids.insert(child, Id::of_request(&event, (on, fd), space, device)).ok()?;
        channel.ids += 1;
        Some(key)
    }

    /// Passes a request on if it has a [short path](KernelCm::plain_request).
    #[inline(never)]
    fn take_plain_request(&mut self, on: ChannelKey, child: IdKey, sink: &mut impl EventSink) -> bool {
        let Some(listener) = self.plain_request(on, child) else { return false };
        let event = Answer(&self.answer);
        let (param, private_data) = (ReceivedParam(event.conn()), event.conn_private());
        let raw = RawEvent::new(child, CmEvent::ConnectRequest);
        sink.take(RawEvent { listener: Some(listener), status: event.status(), param, private_data, ..raw });
        true
    }

    /// The id, the type and the status of the event that was read last, if it is [plain](is_plain), of a connected id,
    /// and reported. Otherwise nothing has changed. The id is looked up once.
    #[inline(always)]
    fn plain_event(&mut self, on: ChannelKey, kind: CmEvent) -> Option<(IdKey, CmEvent, i32)> {
        if !is_plain(kind) {
            return None;
        }
        let KernelCm { ids, answer, scratch, transports, .. } = self;
        let event = Answer(answer);
        let key = IdKey::from_bits(event.uid())?;
        let id = ids.get_filed_mut(key)?;
        if id.uid != Some(key) || id.channel != on || id.datagrams {
            return None;
        }
        if kind == CmEvent::ConnectResponse {
            let (kind, status) = id.answered(scratch, &event);
            return Some((key, kind, status));
        }
        let reported = id.happened(key, kind, event.status(), (scratch, transports))?;
        Some((key, reported.kind, reported.status))
    }

    /// Passes a [plain](is_plain) event on. One without parameters by itself, so that no zeros are passed as variables.
    #[inline(always)]
    fn take_plain(&self, id: IdKey, kind: CmEvent, status: i32, sink: &mut impl EventSink) {
        let raw = RawEvent { status, ..RawEvent::new(id, kind) };
        match contents(kind) {
            Contents::Parameters => {
                let event = Answer(&self.answer);
                sink.take(RawEvent { param: ReceivedParam(event.conn()), private_data: event.conn_private(), ..raw });
            }
            Contents::Nothing | Contents::Argument | Contents::Group => sink.take(raw),
        }
    }

    /// Returns the id and the type of the event that was read last, which is not a request; `None` if it is not
    /// reported.
    #[inline(never)]
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
    #[inline(always)]
    fn raw(&self, reported: Reported) -> RawEvent<&[u8]> {
        let (param, private_data) = match contents(reported.kind) {
            Contents::Nothing => (ReceivedParam::default(), &[][..]),
            Contents::Argument => (ReceivedParam::default(), Answer(&self.answer).argument()),
            Contents::Parameters if !reported.datagrams => {
                let event = Answer(&self.answer);
                (ReceivedParam(event.conn()), event.conn_private())
            }
            Contents::Parameters | Contents::Group => return self.raw_of_datagrams(reported),
        };
        let Reported { id, listener, kind, status, .. } = reported;
        RawEvent { id, listener, kind, status, param, datagram: None, group: None, private_data }
    }

    #[cold]
    fn raw_of_datagrams(&self, reported: Reported) -> RawEvent<&[u8]> {
        let Reported { id, listener, kind, status, group, .. } = reported;
        let event = Answer(&self.answer);
        let raw = RawEvent { listener, status, ..RawEvent::new(id, kind) };
        match contents(kind) {
            Contents::Nothing | Contents::Argument => raw,
            Contents::Group => {
                let datagram = (kind == CmEvent::MulticastJoin).then(|| event.datagram());
                RawEvent { datagram, group, ..raw }
            }
            Contents::Parameters => {
                let datagram = (kind == CmEvent::Established).then(|| event.datagram());
                RawEvent { datagram, private_data: event.ud_private(), ..raw }
            }
        }
    }

    /// Reads the next event, as [`Device::fetch_into`](cmid_proto::Device::fetch_into). `removed` gets the device of a
    /// DEVICE_REMOVAL, if it is known.
    #[inline(always)]
    pub(crate) fn fetch_noting(
        &mut self,
        on: ChannelKey,
        child: IdKey,
        removed: impl FnOnce(Location),
        sink: &mut impl EventSink,
    ) -> Result<bool, Errno> {
        self.prepare_for(child)?;
        let read = self.read(on);
        if let Ok(kind) = read {
            if let Some((id, kind, status)) = self.plain_event(on, kind) {
                self.take_plain(id, kind, status, sink);
                return Ok(true);
            }
            if kind == CmEvent::ConnectRequest && self.take_plain_request(on, child, sink) {
                return Ok(true);
            }
        }
        self.fetch_any_into(on, child, read, removed, sink)
    }

    #[inline(never)]
    fn fetch_any_into(
        &mut self,
        on: ChannelKey,
        child: IdKey,
        read: Result<CmEvent, Errno>,
        removed: impl FnOnce(Location),
        sink: &mut impl EventSink,
    ) -> Result<bool, Errno> {
        let Some(raw) = self.fetch_any(on, child, read, removed)? else { return Ok(false) };
        sink.take(raw);
        Ok(true)
    }

    /// Reserves the slot of the id of a request, so that a request that is read is not lost for lack of one.
    #[inline(always)]
    fn prepare_for(&mut self, child: IdKey) -> Outcome {
        if self.room_for != Some(child) {
            self.make_room_for_id(child)?;
            self.room_for = Some(child);
        }
        Ok(())
    }

    /// Reads one event and returns its type.
    #[inline(always)]
    fn read(&mut self, on: ChannelKey) -> Result<CmEvent, Errno> {
        // An older kernel writes less; the rest stays zero.
        self.answer[offset::EVENT_LEN_OLD..].fill(0);
        self.channels.get(on).ok_or(Errno::EBADF)?.fd().event(&mut self.answer)?;
        Ok(Answer(&self.answer).kind())
    }

    /// Reads the next event. `removed` as in [`fetch_noting`](KernelCm::fetch_noting).
    pub(crate) fn fetch_next(&mut self, on: ChannelKey, child: IdKey, removed: impl FnOnce(Location)) -> Fetched<'_> {
        self.prepare_for(child)?;
        let read = self.read(on);
        self.fetch_any(on, child, read, removed)
    }

    /// Returns the event that was read last, or the next one that is reported. Any number may precede it: each read
    /// takes one from the kernel's queue, which the backlogs limit.
    #[inline]
    fn fetch_any(
        &mut self,
        on: ChannelKey,
        child: IdKey,
        mut read: Result<CmEvent, Errno>,
        removed: impl FnOnce(Location),
    ) -> Fetched<'_> {
        // Ends: each event that is not reported is one of an id that the application has ended, or of a removed device.
        loop {
            let reported = match read {
                Ok(CmEvent::ConnectRequest) => self.requested(on, child),
                Ok(kind) => self.reported(on, kind),
                Err(Errno(libc::EAGAIN)) => return Ok(None),
                Err(Errno(libc::EINTR)) => None,
                Err(errno) => return Err(errno),
            };
            if let Some(reported) = reported {
                if reported.kind == CmEvent::DeviceRemoval {
                    if let Some(location) = self.location_of(reported.id) {
                        removed(location);
                    }
                }
                return Ok(Some(self.raw(reported)));
            }
            read = self.read(on);
        }
    }
}
