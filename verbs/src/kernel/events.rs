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

/// The result of a read.
type Fetched<'a> = Result<Option<RawEvent<&'a [u8]>>, Errno>;

/// The id and the type of an event.
#[derive(Clone, Copy)]
struct Reported {
    id: IdKey,
    listener: Option<IdKey>,
    /// Differs from the kernel's type on an id with a QP: `ESTABLISHED` for a connection that is completed here.
    kind: CmEvent,
    status: i32,
    /// Whether the id is for datagrams.
    datagrams: bool,
}

impl Reported {
    /// An event of a connected id.
    #[inline(always)]
    fn of(id: IdKey, kind: CmEvent, status: i32) -> Self {
        Reported { id, listener: None, kind, status, datagrams: false }
    }
}

/// Whether an event of this type can make calls on an id with a QP, or is more than its type and status.
#[inline(always)]
fn makes_calls(kind: CmEvent) -> bool {
    matches!(kind, CmEvent::ConnectResponse | CmEvent::MulticastJoin)
}

impl Id {
    /// Handles an event; `None` if it is not reported.
    #[inline(always)]
    fn happened(&mut self, key: IdKey, kind: CmEvent, status: i32) -> Option<Reported> {
        match kind {
            CmEvent::Rejected | CmEvent::Disconnected if self.connect_error => return None,
            CmEvent::AddrResolved => self.resolved(),
            CmEvent::Rejected => self.qp.iter().for_each(|qp| qp.stop()),
            CmEvent::AddrError
            | CmEvent::RouteResolved
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

    /// The id and the type of the event that was read last, which is not a request; `None` if it is not reported. Most
    /// events only change the id, which is looked up once.
    #[inline(always)]
    fn reported(&mut self, on: ChannelKey, kind: CmEvent) -> Option<Reported> {
        let event = Answer(&self.answer);
        let key = IdKey::from_bits(event.uid())?;
        match self.ids.get_filed_mut(key) {
            Some(id) if id.uid == Some(key) && id.channel == on && !makes_calls(kind) => {
                id.happened(key, kind, event.status())
            }
            Some(_) | None => self.reported_any(on, key, kind),
        }
    }

    /// The same for an event that makes calls, and for an adopted id, which the kernel reports under an earlier key.
    #[inline(never)]
    fn reported_any(&mut self, on: ChannelKey, uid: IdKey, kind: CmEvent) -> Option<Reported> {
        let key = self.known(on, uid.to_bits())?;
        let id = self.ids.get_mut(key)?;
        let datagrams = id.datagrams;
        if kind == CmEvent::ConnectResponse && id.qp.is_some() {
            // As librdmacm reports it.
            let reported = match self.answered(key) {
                Ok(()) => Reported::of(key, CmEvent::Established, 0),
                Err(_) => Reported::of(key, CmEvent::ConnectError, -1),
            };
            return Some(Reported { datagrams, ..reported });
        }
        let event = Answer(&self.answer);
        if kind == CmEvent::ConnectResponse {
            id.remote_ece = event.ece();
        }
        if kind == CmEvent::MulticastJoin {
            // Whatever the status of the event.
            let reported = match self.joined(key) {
                Ok(()) => Reported::of(key, CmEvent::MulticastJoin, 0),
                Err(_) => Reported::of(key, CmEvent::MulticastError, -1),
            };
            return Some(Reported { datagrams, ..reported });
        }
        id.happened(key, kind, event.status())
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
    fn raw(&self, reported: Reported) -> Fetched<'_> {
        let (param, private_data) = match contents(reported.kind) {
            Contents::Nothing => (ReceivedParam::default(), &[][..]),
            Contents::Parameters if !reported.datagrams => {
                let event = Answer(&self.answer);
                (ReceivedParam(event.conn()), event.conn_private())
            }
            Contents::Parameters | Contents::Group => return self.raw_of_datagrams(reported),
        };
        let Reported { id, listener, kind, status, .. } = reported;
        Ok(Some(RawEvent { id, listener, kind, status, param, datagram: None, group: None, private_data }))
    }

    #[cold]
    fn raw_of_datagrams(&self, reported: Reported) -> Fetched<'_> {
        let Reported { id, listener, kind, status, .. } = reported;
        let event = Answer(&self.answer);
        let raw = RawEvent { listener, status, ..RawEvent::new(id, kind) };
        Ok(Some(match contents(kind) {
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
        }))
    }

    /// Reads the next event. `removed` gets the device of a DEVICE_REMOVAL, if it is known.
    #[inline(always)]
    pub(crate) fn fetch_noting(&mut self, on: ChannelKey, child: IdKey, removed: impl FnOnce(Location)) -> Fetched<'_> {
        // Reserves a slot first, so that a request is not lost for lack of one.
        self.make_room_for_id(child)?;
        let reported = match self.read(on) {
            Ok(CmEvent::ConnectRequest) => return self.fetch_request(on, child, removed),
            Ok(kind) => self.reported(on, kind),
            Err(Errno(libc::EAGAIN)) => return Ok(None),
            Err(Errno(libc::EINTR)) => None,
            Err(errno) => return Err(errno),
        };
        let Some(reported) = reported else { return self.fetch_next(on, child, removed) };
        if reported.kind == CmEvent::DeviceRemoval {
            if let Some(location) = self.location_of(reported.id) {
                removed(location);
            }
        }
        self.raw(reported)
    }

    /// Reads one event and returns its type.
    #[inline(always)]
    fn read(&mut self, on: ChannelKey) -> Result<CmEvent, Errno> {
        // An older kernel writes less; the rest stays zero.
        self.answer[offset::EVENT_LEN_OLD..].fill(0);
        self.channels.get(on).ok_or(Errno::EBADF)?.event(&mut self.answer)?;
        Ok(Answer(&self.answer).kind())
    }

    /// Returns the request that was read last.
    #[inline(never)]
    fn fetch_request(&mut self, on: ChannelKey, child: IdKey, removed: impl FnOnce(Location)) -> Fetched<'_> {
        match self.requested(on, child) {
            Some(reported) => self.raw(reported),
            None => self.fetch_next(on, child, removed),
        }
    }

    /// Reads the next event after one that is not reported.
    #[cold]
    fn fetch_next(&mut self, on: ChannelKey, child: IdKey, removed: impl FnOnce(Location)) -> Fetched<'_> {
        for _ in 1..STRAY_MAX {
            let reported = match self.read(on) {
                Ok(CmEvent::ConnectRequest) => self.requested(on, child),
                Ok(kind) => self.reported(on, kind),
                Err(Errno(libc::EAGAIN)) => return Ok(None),
                Err(Errno(libc::EINTR)) => None,
                Err(errno) => return Err(errno),
            };
            let Some(reported) = reported else { continue };
            if reported.kind == CmEvent::DeviceRemoval {
                if let Some(location) = self.location_of(reported.id) {
                    removed(location);
                }
            }
            return self.raw(reported);
        }
        Err(Errno::EIO)
    }
}
