//! The core in the loop that all drivers share.

use std::hint::black_box;
use std::net::SocketAddr;

use cmid_proto::{
    AckToken, Acks, Call, ChannelKey, Core, Device, Drive, Ece, Errno, Event, EventKind, IdKey, Next, Outcome, Poller,
    PortSpace, Progress, RawEvent, Request, Time,
};

use super::{LIMITS, Level};

/// The core in the loop that all drivers share, with a device that does nothing.
#[derive(Debug)]
pub struct Driven {
    drive: Drive<NopDevice, NopPoller>,
}

/// The drivers' own budget.
const BUDGET: usize = 64;

impl Driven {
    #[inline(always)]
    fn turn(&mut self) {
        assert!(self.drive.run(BUDGET) != Next::Again, "one turn is enough");
    }
}

impl Level for Driven {
    type Arriving = ();

    const NAME: &'static str = "drive";
    const READS_AHEAD: bool = false;

    fn new() -> Self {
        Driven { drive: Drive::with(NopDevice::default(), NopPoller::default(), (), LIMITS) }
    }

    fn set_edge_triggered(&mut self, is_edge: bool) {
        self.drive.poller_mut().is_edge = is_edge;
    }

    fn core(&self) -> &Core {
        self.drive.core()
    }

    fn made(&self) -> u64 {
        self.drive.device().made
    }

    fn open(&mut self) -> ChannelKey {
        self.drive.open_channel(Acks::Explicit).expect("room")
    }

    #[inline(always)]
    fn create(&mut self, on: ChannelKey) -> IdKey {
        self.drive.create_id(Some(on), PortSpace::Tcp).expect("room")
    }

    #[inline(always)]
    #[allow(clippy::wildcard_enum_match_arm, reason = "whatever else there is")]
    fn request(&mut self, id: IdKey, request: Request<'static>, deadline: Time) {
        let drive = &mut self.drive;
        let result = match request {
            Request::ResolveAddr { src, dst } => drive.resolve_addr(id, src, dst, deadline),
            Request::ResolveRoute => drive.resolve_route(id, deadline),
            Request::Listen { backlog } => drive.listen(id, backlog),
            Request::Connect { param, private_data } => drive.connect(id, param, private_data, deadline),
            Request::Accept { param, private_data } => drive.accept(id, param, private_data, deadline),
            Request::Establish => drive.establish(id),
            Request::Disconnect => drive.disconnect(id, deadline),
            Request::SetOption { option } => drive.set_option(id, option),
            Request::Destroy => drive.destroy(id, deadline).map(done),
            other => panic!("no case asks for {other:?}"),
        };
        result.expect("a request in the right state");
    }

    #[inline(always)]
    fn migrate(&mut self, id: IdKey, to: ChannelKey) {
        done(self.drive.migrate(id, Some(to), Time::NEVER).expect("nothing in the way"));
        self.turn();
    }

    fn prepare_event(&mut self, raw: RawEvent<&'static [u8]>) {
        self.drive.device_mut().next = Some(raw);
    }

    #[inline(always)]
    fn receive(&mut self, device_channel: ChannelKey, (): ()) {
        self.drive.readable(device_channel);
        self.turn();
    }

    /// The turn has made the calls.
    #[inline(always)]
    fn run_turns(&mut self) {}

    #[inline(always)]
    fn take(&mut self, channel: ChannelKey) -> Option<Event> {
        self.drive.next_event(channel)
    }

    fn ack(&mut self, ack_token: AckToken) {
        self.drive.ack(ack_token).expect("an ack is owed");
    }

    #[inline(always)]
    fn take_and_ack(&mut self, channel: ChannelKey) -> EventKind {
        // Used in place, without a move.
        let mut event = self.drive.next_event(channel);
        let event = black_box(&mut event).as_mut().expect("an event");
        self.drive.ack(event.ack_token.take().expect("an ack token")).expect("an ack is owed");
        event.kind
    }

    #[inline(always)]
    fn look(&mut self, on: ChannelKey) -> bool {
        let rest = self.drive.run(BUDGET);
        rest != Next::Wait(None) || self.drive.next_event(on).is_some()
    }

    fn now(&self) -> Time {
        self.drive.now()
    }

    #[inline(always)]
    fn pass(&mut self, now: Time) {
        self.drive.set_now(now);
        self.turn();
    }
}

/// Checks that a call has completed at once.
fn done(progress: Progress) {
    assert!(progress == Progress::Done, "no ack is owed");
}

/// Waits for nothing. Unless it is set otherwise, it is level-triggered, like those of cmid-epoll and cmid-blocking: one read
/// per report.
#[derive(Debug, Default)]
struct NopPoller {
    is_edge: bool,
}

impl<D> Poller<D> for NopPoller {
    fn add(&mut self, _: ChannelKey, _: &D) -> Result<(), Errno> {
        Ok(())
    }

    fn remove(&mut self, _: ChannelKey, _: &D) {}

    fn is_level_triggered(&self) -> bool {
        !self.is_edge
    }
}

/// A device on which all calls succeed. It reports the given events.
#[derive(Debug, Default)]
struct NopDevice {
    next: Option<RawEvent<&'static [u8]>>,
    made: u64,
}

impl Device for NopDevice {
    type Handle = ();

    #[inline(always)]
    fn fetch(&mut self, _: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        black_box(child);
        let Some(raw) = &self.next else { return Ok(None) };
        // The default is right for `datagram`: no case uses datagrams.
        let raw = RawEvent { datagram: None, ..*raw };
        self.next = None;
        Ok(Some(raw))
    }

    #[inline(always)]
    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        black_box((call, private_data));
        self.made += 1;
        Ok(())
    }

    fn local_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Err(Errno::EADDRNOTAVAIL)
    }

    fn peer_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Err(Errno::EADDRNOTAVAIL)
    }

    fn remote_ece(&self, _: IdKey) -> Result<Ece, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn release(&mut self, _: IdKey, _: ChannelKey) -> Result<(), Errno> {
        Ok(())
    }

    fn adopt(&mut self, _: IdKey, _: ChannelKey, (): ()) -> Outcome {
        Ok(())
    }
}
