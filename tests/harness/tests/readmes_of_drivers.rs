//! The examples of the drivers' READMEs where all does not go well: nobody listens, or the peer leaves. The lines between
//! `begin` and `end` are those of a README.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use cmid_blocking::{Connection, Listener, Options};
use cmid_epoll::Epoll;
use cmid_epoll::proto::Next;
use cmid_harness::sim_host as host;
use cmid_mio::Mio;
use cmid_proto::datapath::{Caps, QpParts, WcStatus, prelude::*};
use cmid_proto::{
    Acks, ChannelKey, CmEvent, ConnParam, Drive, Errno, Event, EventKind, IdKey, Limits, Poller, PortSpace, RequestKind,
};
use cmid_sim::{Cq, Host, Qp, SimDevice};
use rustix::event::{PollFd, PollFlags, poll};

const SERVER: &str = "10.0.0.2:7471";
/// Longer than any wait of these tests, also on a busy machine.
const SOON: Duration = Duration::from_secs(20);

type Answer<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The lines of a text, without indentation.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).collect()
}

/// The text without what differs where lines are shorter, as on pages.
fn unwrapped(lines: &[&str]) -> String {
    lines.join("").replace("//", "").replace(' ', "").replace(",)", ")").replace(",}", "}")
}

#[test]
fn the_lines_are_those_of_the_readmes() {
    let here = lines(include_str!("readmes_of_drivers.rs"));
    for (begin, readme, blocks) in [
        ("// begin blocking", include_str!("../../../io-blocking/README.md"), 2),
        ("// begin epoll", include_str!("../../../io-epoll/README.md"), 1),
        ("// begin mio", include_str!("../../../io-mio/README.md"), 1),
    ] {
        let readme = unwrapped(&lines(readme));
        let mut found = 0;
        for (at, _) in here.iter().enumerate().filter(|(_, line)| **line == begin) {
            let block: Vec<_> = here[at + 1..].iter().take_while(|line| **line != "// end").copied().collect();
            assert!(!block.is_empty() && readme.contains(&unwrapped(&block)), "{block:#?}");
            found += 1;
        }
        assert_eq!(found, blocks, "{begin}");
    }
}

/// The server of the README of cmid-blocking.
fn serve(mut listener: Listener<SimDevice>) -> Result<(), cmid_blocking::Error> {
    // begin blocking
    let incoming = listener.accept(Duration::from_secs(5))?;
    // Each side has a QP with a PD and a CQ of its own.
    let (mut connection, _qp) = incoming.accept(&Options::default(), QpParts::attach)?;
    connection.wait_closed(Duration::from_secs(5))
    // end
}

/// Its client, which leaves without a disconnect.
fn connect(host: &Host) -> Answer<()> {
    // begin blocking
    let peer = "10.0.0.2:7471".parse()?;
    let (mut connection, _qp) = Connection::connect(host.device(), peer, &Options::default(), QpParts::attach)?;
    // end
    assert!(connection.next_event(Duration::ZERO).is_err());
    Ok(())
}

#[test]
fn a_blocking_server_ends_with_a_client_that_leaves_without_a_message() {
    let host = host();
    let listener = Listener::bind(host.device(), SERVER.parse().unwrap()).unwrap();
    let begun = Instant::now();
    let server = thread::spawn(|| serve(listener));
    connect(&host).unwrap();
    server.join().unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "the event has ended the wait, and not its time limit");
}

#[test]
fn a_blocking_server_is_told_that_its_client_has_given_up() {
    let host = host();
    let listener = Listener::bind(host.device(), SERVER.parse().unwrap()).unwrap();
    let options = Options { timeout: Duration::from_millis(100), ..Options::default() };
    let error = Connection::connect(host.device(), SERVER.parse().unwrap(), &options, QpParts::attach).err().unwrap();
    assert_eq!(error.errno(), Errno::ETIMEDOUT, "{error}");
    // The kernel has no attributes for the QP of a connection that has ended (`ib_cm_init_qp_attr`).
    let begun = Instant::now();
    let error = serve(listener).unwrap_err();
    assert_eq!(error.errno(), Errno::EINVAL, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5), "no wait has ended at its time limit");
}

#[test]
fn a_blocking_client_without_a_server_is_refused() {
    let error = connect(&host()).unwrap_err();
    let error = error.downcast::<cmid_blocking::Error>().unwrap();
    assert_eq!(error.errno(), Errno::ECONNREFUSED, "{error}");
}

/// A driver, and the loop of its README.
trait Shown: Sized {
    type Poller: Poller<SimDevice>;

    fn new(host: &Host) -> Answer<Self>;

    fn drive(&mut self) -> &mut Drive<SimDevice, Self::Poller>;

    /// The next event of a channel, by the loop of the README.
    fn next(&mut self, channel: ChannelKey) -> Answer<Event>;
}

impl Shown for Epoll<SimDevice> {
    type Poller = cmid_epoll::Channels;

    fn new(host: &Host) -> Answer<Self> {
        Ok(Epoll::new(host.device(), cmid_epoll::Config::default())?)
    }

    fn drive(&mut self) -> &mut Drive<SimDevice, Self::Poller> {
        self.drive()
    }

    fn next(&mut self, channel: ChannelKey) -> Answer<Event> {
        let epoll = self;
        let event = loop {
            // begin epoll
            // All work first, then a wait in another loop: here poll(2), with no time limit because the deadline ends it.
            while epoll.turn()? == Next::Again {}
            if let Some(event) = epoll.drive().next_event(channel) {
                break event;
            }
            poll(&mut [PollFd::new(&epoll, PollFlags::IN)], None)?;
            // end
        };
        Ok(event)
    }
}

struct OnMio {
    poll: mio::Poll,
    driver: Mio<SimDevice>,
}

impl Shown for OnMio {
    type Poller = cmid_mio::Channels;

    fn new(host: &Host) -> Answer<Self> {
        let poll = mio::Poll::new()?;
        let config = cmid_mio::Config { limits: Limits::default(), tokens: 1000..1064 };
        let driver = Mio::new(host.device(), poll.registry(), config)?;
        Ok(OnMio { poll, driver })
    }

    fn drive(&mut self) -> &mut Drive<SimDevice, Self::Poller> {
        self.driver.drive()
    }

    fn next(&mut self, channel: ChannelKey) -> Answer<Event> {
        let (OnMio { poll, driver }, mut events) = (self, mio::Events::with_capacity(64));
        let event = loop {
            // begin mio
            poll.poll(&mut events, driver.timeout(None))?;
            for event in &events {
                if !driver.handle(event) {
                    // one of the application's own sources
                }
            }
            let _next = driver.turn();
            if let Some(event) = driver.drive().next_event(channel) {
                break event;
            }
            // end
        };
        Ok(event)
    }
}

/// Both sides of a connection in one driver: the channel of each, and a listener or none.
struct Sides<S> {
    driver: S,
    client: ChannelKey,
    server: ChannelKey,
}

impl<S: Shown> Sides<S> {
    fn new(listens: bool) -> Self {
        let mut driver = S::new(&host()).unwrap();
        let [client, server] = [(); 2].map(|()| driver.drive().open_channel(Acks::OnDelivery).unwrap());
        if listens {
            let listener = driver.drive().create_id(Some(server), PortSpace::Tcp).unwrap();
            driver.drive().bind(listener, SERVER.parse().unwrap()).unwrap();
            driver.drive().listen(listener, 8).unwrap();
        }
        Sides { driver, client, server }
    }

    #[track_caller]
    fn expect(&mut self, on: ChannelKey, expected: CmEvent) -> IdKey {
        let event = self.driver.next(on).unwrap();
        assert_eq!(event.cm(), Some(expected));
        event.id
    }

    /// A QP that has posted a receive, and its completions.
    fn attach(&mut self, id: IdKey) -> (Qp, Cq) {
        let attached = self.driver.drive().attach_qp(id, |device, to| {
            let (pd, cq) = (device.alloc_pd(to.id())?, device.create_cq(to.id(), 32)?);
            let mut qp = device.create_qp(to, &pd, &cq, &cq, Caps::default())?;
            qp.post_recv(7, [])?;
            Ok((qp, cq))
        });
        attached.unwrap()
    }

    /// A client that has resolved its route and has a QP.
    fn client(&mut self) -> (IdKey, Qp) {
        let id = self.driver.drive().create_id(Some(self.client), PortSpace::Tcp).unwrap();
        let deadline = self.driver.drive().within(SOON);
        self.driver.drive().resolve_addr(id, None, SERVER.parse().unwrap(), deadline).unwrap();
        self.expect(self.client, CmEvent::AddrResolved);
        self.driver.drive().resolve_route(id, deadline).unwrap();
        self.expect(self.client, CmEvent::RouteResolved);
        let (qp, _cq) = self.attach(id);
        self.driver.drive().connect(id, ConnParam::default(), &[], deadline).unwrap();
        (id, qp)
    }
}

fn an_address_that_no_host_has<S: Shown>() {
    let Sides { mut driver, client, .. } = Sides::<S>::new(false);
    let id = driver.drive().create_id(Some(client), PortSpace::Tcp).unwrap();
    let deadline = driver.drive().within(Duration::from_millis(100));
    driver.drive().resolve_addr(id, None, "10.0.0.9:7471".parse().unwrap(), deadline).unwrap();
    let event = driver.next(client).unwrap();
    // The kernel's time limit is that of the core, and either may be first.
    let ends = [EventKind::Cm(CmEvent::AddrError), EventKind::DeadlinePassed(RequestKind::ResolveAddr)];
    assert!(event.id == id && ends.contains(&event.kind), "{event:?}");
}

fn nobody_listens<S: Shown>() {
    let mut sides = Sides::<S>::new(false);
    let (client, _qp) = sides.client();
    assert_eq!(sides.expect(sides.client, CmEvent::Rejected), client);
}

fn the_client_gives_up<S: Shown>() {
    let mut sides = Sides::<S>::new(true);
    let (client, _qp) = sides.client();
    let request = sides.expect(sides.server, CmEvent::ConnectRequest);
    let _qp = sides.attach(request);
    sides.driver.drive().destroy_now(client).unwrap();
    // The kernel reports no event of a request that nobody has answered; the answer fails.
    let deadline = sides.driver.drive().within(SOON);
    thread::sleep(Duration::from_millis(20));
    let error = sides.driver.drive().accept(request, ConnParam::default(), &[], deadline).unwrap_err();
    assert_eq!(error.errno(), Errno::EINVAL, "{error}");
}

/// Its end completes no receive; the disconnect of this side does.
fn the_client_leaves_without_a_message<S: Shown>() {
    let mut sides = Sides::<S>::new(true);
    let (client, _qp) = sides.client();
    let request = sides.expect(sides.server, CmEvent::ConnectRequest);
    let (_qp, mut cq) = sides.attach(request);
    let deadline = sides.driver.drive().within(SOON);
    sides.driver.drive().accept(request, ConnParam::default(), &[], deadline).unwrap();
    sides.expect(sides.client, CmEvent::Established);
    assert_eq!(sides.expect(sides.server, CmEvent::Established), request);
    sides.driver.drive().destroy_now(client).unwrap();
    assert_eq!(sides.expect(sides.server, CmEvent::Disconnected), request);
    assert_eq!(cq.poll_one().unwrap().map(|completion| completion.wr_id), None);
    sides.driver.drive().disconnect(request, deadline).unwrap();
    let completion = cq.poll_one().unwrap().unwrap();
    assert_eq!((completion.wr_id, completion.status), (7, WcStatus::WR_FLUSH_ERR));
}

#[test]
fn the_loop_on_mio_ends_in_each_case() {
    an_address_that_no_host_has::<OnMio>();
    nobody_listens::<OnMio>();
    the_client_gives_up::<OnMio>();
    the_client_leaves_without_a_message::<OnMio>();
}

#[test]
fn the_loop_on_poll_ends_in_each_case() {
    an_address_that_no_host_has::<Epoll<SimDevice>>();
    nobody_listens::<Epoll<SimDevice>>();
    the_client_gives_up::<Epoll<SimDevice>>();
    the_client_leaves_without_a_message::<Epoll<SimDevice>>();
}
