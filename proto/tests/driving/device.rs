//! A device that records its calls.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use cmid_proto::{
    Acks, Call, ChannelKey, CmEvent, ConnParam, Device, Drive, Ece, Errno, Event, IdKey, Limits, Next, Observer,
    Outcome, Pollable, Poller, PortSpace, RawEvent, Time, Transport,
};

pub(crate) const PARAM: ConnParam = ConnParam {
    responder_resources: 1,
    initiator_depth: 1,
    flow_control: false,
    retry_count: 7,
    rnr_retry_count: 7,
    srq: false,
    qp_num: 7,
};
pub(crate) const LIMITS: Limits = Limits { ids: 4, channels: 8, events: 4, groups: 4, ..Limits::SINGLE };

/// The address of a multicast group.
pub(crate) fn group_addr(last: u8) -> SocketAddr {
    SocketAddr::from(([239, 1, 1, last], 7471))
}

pub(crate) fn addr(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 7471))
}

#[derive(Debug, Default)]
pub(crate) struct Script {
    /// The names of the calls so far.
    pub(crate) calls: Vec<&'static str>,
    /// The next call of this name fails; `release` and `adopt` count as calls.
    pub(crate) fails: Option<(&'static str, Errno)>,
    /// The number of calls of that name that succeed before.
    pub(crate) spared: usize,
    pub(crate) events: VecDeque<(ChannelKey, RawEvent<&'static [u8]>)>,
    /// The next read fails.
    pub(crate) unreadable: Option<Errno>,
    /// All reads of this channel fail.
    pub(crate) broken: Option<(ChannelKey, Errno)>,
    /// The number of reads.
    pub(crate) reads: usize,
    /// Connection requests that are queued: their channel, their listener, their number.
    pub(crate) requests: Option<(ChannelKey, IdKey, usize)>,
    /// Channels have no descriptor.
    pub(crate) blind: bool,
    /// The transport of each id's device.
    pub(crate) transport: Option<Transport>,
    /// Whether ids have a QP, as the device knows.
    pub(crate) has_qp: Option<bool>,
    open: BTreeSet<ChannelKey>,
    descriptor: Option<File>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Script { descriptor: File::open("/dev/null").ok(), ..Script::default() }
    }

    /// The number of queued connection requests.
    pub(crate) fn unread(&self) -> usize {
        self.requests.map_or(0, |(.., left)| left)
    }

    fn done(&mut self, name: &'static str) -> Outcome {
        self.calls.push(name);
        let is_it = self.fails.is_some_and(|(fails, _)| fails == name);
        if is_it && self.spared > 0 {
            self.spared -= 1;
            return Ok(());
        }
        self.fails.take_if(|_| is_it).map_or(Ok(()), |(_, errno)| Err(errno))
    }
}

impl Device for Script {
    type Handle = u32;

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.reads += 1;
        if let Some(errno) = self.unreadable.take() {
            return Err(errno);
        }
        if let Some((_, errno)) = self.broken.filter(|(channel, _)| *channel == on) {
            return Err(errno);
        }
        if let Some((device_channel, listener, left @ 1..)) = &mut self.requests {
            if *device_channel == on {
                *left -= 1;
                let request = RawEvent::new(child, CmEvent::ConnectRequest);
                return Ok(Some(RawEvent { listener: Some(*listener), ..request }));
            }
        }
        let at = self.events.iter().position(|(channel, _)| *channel == on);
        Ok(at.and_then(|at| self.events.remove(at)).map(|(_, raw)| raw))
    }

    fn call(&mut self, call: &Call, _: &[u8]) -> Outcome {
        self.done(call.name())?;
        match *call {
            Call::OpenChannel { channel } => assert!(self.open.insert(channel), "{channel} is opened twice"),
            Call::CloseChannel { channel } => assert!(self.open.remove(&channel), "{channel} is closed twice"),
            _ => {}
        }
        Ok(())
    }

    fn local_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Ok(addr(1))
    }

    fn peer_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Ok(addr(2))
    }

    fn remote_ece(&self, _: IdKey) -> Result<Ece, Errno> {
        Ok(Ece { vendor_id: 3, options: 4 })
    }

    fn transport(&mut self, _: IdKey) -> Option<Transport> {
        self.transport
    }

    fn has_qp(&self, _: IdKey) -> Option<bool> {
        self.has_qp
    }

    fn discard_qp(&mut self, _: IdKey) {
        self.calls.push("discard_qp");
    }

    fn release(&mut self, _: IdKey, channel: ChannelKey) -> Result<u32, Errno> {
        self.done("release")?;
        assert!(self.open.remove(&channel));
        Ok(42)
    }

    fn adopt(&mut self, _: IdKey, channel: ChannelKey, handle: u32) -> Outcome {
        assert_eq!(handle, 42);
        self.done("adopt")?;
        assert!(self.open.insert(channel));
        Ok(())
    }
}

impl Pollable for Script {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().filter(|_| self.open.contains(&on) && !self.blind).map(File::as_fd)
    }

    fn sibling(&self) -> Self {
        Script::new()
    }
}

/// Records which channels are registered.
#[derive(Debug, Default)]
pub(crate) struct RecordingPoller {
    pub(crate) channels: BTreeSet<ChannelKey>,
    pub(crate) refuses: Cell<Option<Errno>>,
}

impl Poller<Script> for RecordingPoller {
    fn add(&mut self, channel: ChannelKey, device: &Script) -> Result<(), Errno> {
        device.fd(channel).ok_or(Errno::EBADF)?;
        if let Some(errno) = self.refuses.take() {
            return Err(errno);
        }
        assert!(self.channels.insert(channel), "{channel} is added twice");
        Ok(())
    }

    fn remove(&mut self, channel: ChannelKey, _: &Script) {
        assert!(self.channels.remove(&channel), "{channel} was not waited for");
    }
}

pub(crate) type Driven = Drive<Script, RecordingPoller>;

pub(crate) fn driven() -> Driven {
    Drive::with(Script::new(), RecordingPoller::default(), (), LIMITS)
}

/// Asserts that the core, the device and the poller hold nothing.
pub(crate) fn is_empty(drive: &Driven) {
    drive.core().check();
    assert_eq!((drive.core().ids().count(), drive.core().channels().count(), drive.core().summary().groups), (0, 0, 0));
    assert!(drive.device().open.is_empty() && drive.poller().channels.is_empty());
}

/// Returns the calls made since the last `calls`.
pub(crate) fn calls(drive: &mut Driven) -> Vec<&'static str> {
    std::mem::take(&mut drive.device_mut().calls)
}

pub(crate) fn fails(drive: &mut Driven, call: &'static str, errno: Errno) {
    drive.device_mut().fails = Some((call, errno));
}

pub(crate) fn channel_and_id(drive: &mut Driven, acks: Acks, space: PortSpace) -> (ChannelKey, IdKey) {
    let channel = drive.open_channel(acks).unwrap();
    let id = drive.create_id(Some(channel), space).unwrap();
    calls(drive);
    (channel, id)
}

/// A drive with a channel and an id for connections on it.
pub(crate) fn with_an_id(acks: Acks) -> (Driven, ChannelKey, IdKey) {
    let mut drive = driven();
    let (channel, id) = channel_and_id(&mut drive, acks, PortSpace::Tcp);
    (drive, channel, id)
}

/// Makes a turn that leaves an event of the id to be taken from the channel, and takes it.
pub(crate) fn delivers<P: Poller<Script>, O: Observer>(
    drive: &mut Drive<Script, P, O>,
    channel: ChannelKey,
    id: IdKey,
) {
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.next_event(channel).unwrap().id, id);
}

/// Queues an event at the device and reports its channel as readable.
pub(crate) fn has(drive: &mut Driven, raw: RawEvent<&'static [u8]>) -> ChannelKey {
    let on = drive.core().device_channel(raw.listener.unwrap_or(raw.id)).unwrap();
    drive.device_mut().events.push_back((on, raw));
    drive.readable(on);
    on
}

/// Queues an event at the device, and makes a turn.
pub(crate) fn report(drive: &mut Driven, id: IdKey, kind: CmEvent) {
    has(drive, RawEvent::new(id, kind));
    assert_ne!(drive.run(8), Next::Again);
    drive.core().check();
}

/// Queues an event at the device, and takes it.
pub(crate) fn take(drive: &mut Driven, id: IdKey, kind: CmEvent) -> Option<Event> {
    report(drive, id, kind);
    let channel = drive.core().channel(id).unwrap();
    let event = drive.next_event(channel);
    drive.core().check();
    event
}

/// Queues a connection request and reads it in a turn. Returns its id.
pub(crate) fn requested(drive: &mut Driven, listener: IdKey) -> IdKey {
    let on = drive.core().device_channel(listener).unwrap();
    let child = drive.core().wants_event(on).unwrap();
    has(drive, RawEvent { listener: Some(listener), ..RawEvent::new(child, CmEvent::ConnectRequest) });
    assert_ne!(drive.run(8), Next::Again);
    child
}

/// An id that is ready to connect.
pub(crate) fn routed(drive: &mut Driven, id: IdKey) {
    drive.resolve_addr(id, None, addr(2), Time::NEVER).unwrap();
    take(drive, id, CmEvent::AddrResolved);
    drive.resolve_route(id, Time::NEVER).unwrap();
    take(drive, id, CmEvent::RouteResolved);
}
