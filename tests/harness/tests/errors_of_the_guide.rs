//! Each error text of docs/errors.md is provoked here, on the simulator in virtual time: the guide quotes what a user reads.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use cmid_proto::datapath::{Access, Caps, QpAttrs, QpParts, Remote, RnrTimer, SendWr, prelude::*};
use cmid_proto::handshake::{Connected, Dial, DialTo, HandshakeError, Incoming, Serve};
use cmid_proto::{Acks, ChannelKey, ConnParam, Drive, Errno, Event, IdKey, Limits, PortSpace, Time, Transport};
use cmid_sim::{Change, Config, Fabric, Host, Mr, Policy, SimDevice};
use cmid_verbs::OpenError;

type Made = QpParts<SimDevice>;

const NEAR: &str = "10.0.0.1:7471";
const FAR: &str = "10.0.0.2:7471";

/// A driver on a host of its own, and its channel.
struct Side {
    host: Host,
    drive: Drive<SimDevice>,
    channel: ChannelKey,
}

/// Two hosts, and the texts so far.
struct World {
    fabric: Fabric,
    near: Side,
    far: Side,
}

impl World {
    fn new() -> Self {
        World::with(Config::default(), Transport::InfiniBand)
    }

    fn with(config: Config, transport: Transport) -> Self {
        let fabric = Fabric::new(config);
        let [near, far] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|ip| {
            let host = fabric.host_with(&[ip.into()], transport);
            let mut drive = Drive::new(host.device(), Limits::default());
            let channel = drive.open_channel(Acks::OnDelivery).unwrap();
            Side { host, drive, channel }
        });
        World { fabric, near, far }
    }

    fn id(&mut self) -> IdKey {
        self.near.drive.create_id(Some(self.near.channel), PortSpace::Tcp).unwrap()
    }

    fn dial(&mut self, to: &DialTo, span: Duration) -> Dial<Made> {
        let deadline = self.near.drive.within(span);
        Dial::start(&mut self.near.drive, Some(self.near.channel), to, deadline).unwrap()
    }

    fn listen(&mut self) -> IdKey {
        let id = self.far.drive.create_id(Some(self.far.channel), PortSpace::Tcp).unwrap();
        self.far.drive.bind(id, FAR.parse().unwrap()).unwrap();
        self.far.drive.listen(id, 8).unwrap();
        id
    }

    /// Lets time pass until `look` finds something.
    fn until<T>(&mut self, mut look: impl FnMut(&mut Side, &mut Side) -> Option<T>) -> T {
        for _ in 0..10_000 {
            for side in [&mut self.near, &mut self.far] {
                side.drive.set_now(self.fabric.now());
                side.drive.readable_all();
                let _next = side.drive.run(64);
            }
            if let Some(found) = look(&mut self.near, &mut self.far) {
                return found;
            }
            let timeouts = [&self.near, &self.far].map(|side| side.drive.next_timeout());
            let due = timeouts.into_iter().chain([self.fabric.next_due()]).flatten().min();
            self.fabric.advance_to(due.expect("nothing is due"));
        }
        panic!("nothing has happened")
    }

    fn dial_fails(&mut self, mut dial: Dial<Made>) -> HandshakeError {
        self.until(|near, _| {
            let event = near.drive.next_event(near.channel)?;
            dial.handle(&mut near.drive, event, |drive, id| drive.attach_qp(id, Made::attach)).err()
        })
    }

    fn request(&mut self, dial: &mut Dial<Made>) -> Event {
        self.until(|near, far| {
            while let Some(event) = near.drive.next_event(near.channel) {
                dial.handle(&mut near.drive, event, |drive, id| drive.attach_qp(id, Made::attach)).unwrap();
            }
            far.drive.next_event(far.channel)
        })
    }

    /// A connection with these parameters of the near side.
    fn connected(&mut self, param: ConnParam) -> (Connected<Made>, Connected<Made>) {
        self.listen();
        let mut dial = self.dial(&DialTo { param, ..DialTo::new(FAR.parse().unwrap()) }, Duration::from_secs(5));
        let request = self.request(&mut dial);
        let incoming = Incoming::new(&mut self.far.drive, request).unwrap();
        let attach = |drive: &mut Drive<SimDevice>, id| drive.attach_qp(id, Made::attach);
        let mut serve: Serve<Made> = incoming.accept(&mut self.far.drive, param, &[], Time::NEVER, attach).unwrap();
        let (mut client, mut server) = (None, None);
        self.until(|near, far| {
            while let Some(event) = near.drive.next_event(near.channel) {
                let attach = |drive: &mut Drive<SimDevice>, id| drive.attach_qp(id, Made::attach);
                client = dial.handle(&mut near.drive, event, attach).unwrap();
            }
            while let Some(event) = far.drive.next_event(far.channel) {
                server = serve.handle(&mut far.drive, event).unwrap();
            }
            client.take_if(|_| server.is_some()).zip(server.take_if(|_| true))
        })
    }
}

fn param() -> ConnParam {
    ConnParam { retry_count: 3, rnr_retry_count: 1, ..ConnParam::default() }
}

fn text(error: &impl Display) -> String {
    error.to_string()
}

fn connects() -> Vec<String> {
    let mut texts = Vec::new();
    let (far, second) = (DialTo::new(FAR.parse().unwrap()), Duration::from_secs(1));

    let mut world = World::new();
    let dial = world.dial(&far, second);
    texts.push(text(&world.dial_fails(dial)));

    let mut world = World::new();
    let dial = world.dial(&DialTo::new("10.0.0.9:7471".parse().unwrap()), Duration::from_secs(60));
    texts.push(text(&world.dial_fails(dial)));

    // The server takes the request and does not answer.
    let mut world = World::new();
    world.listen();
    let dial = world.dial(&far, second);
    texts.push(text(&world.dial_fails(dial)));

    let mut world = World::new();
    world.listen();
    let mut dial = world.dial(&far, second);
    let request = world.request(&mut dial);
    Incoming::new(&mut world.far.drive, request).unwrap().reject(&mut world.far.drive, b"full").unwrap();
    texts.push(text(&world.dial_fails(dial)));

    // The client gives up before the answer.
    let mut world = World::new();
    world.listen();
    let mut dial = world.dial(&far, second);
    let request = world.request(&mut dial);
    dial.cancel(&mut world.near.drive).unwrap();
    world.fabric.advance_by(second);
    let incoming = Incoming::new(&mut world.far.drive, request).unwrap();
    let attach = |drive: &mut Drive<SimDevice>, id| drive.attach_qp(id, Made::attach);
    let error = incoming.accept(&mut world.far.drive, param(), &[], Time::NEVER, attach).err().unwrap();
    texts.push(text(&error));

    let mut world = World::new();
    let dial = world.dial(&DialTo::new("127.0.0.1:7471".parse().unwrap()), second);
    texts.push(text(&world.dial_fails(dial)));
    let id = world.id();
    let mapped = "[::ffff:10.0.0.2]:7471".parse().unwrap();
    texts.push(text(&world.near.drive.resolve_addr(id, None, mapped, Time::NEVER).unwrap_err()));

    let mut world = World::with(Config::default(), Transport::Iwarp);
    let id = world.id();
    world.near.drive.resolve_addr(id, None, FAR.parse().unwrap(), Time::NEVER).unwrap();
    let _resolved = world.until(|near, _| near.drive.next_event(near.channel));
    world.near.drive.resolve_route(id, Time::NEVER).unwrap();
    let _resolved = world.until(|near, _| near.drive.next_event(near.channel));
    for param in [param(), ConnParam { qp_num: 17, ..param() }] {
        texts.push(text(&world.near.drive.connect(id, param, &[], Time::NEVER).unwrap_err()));
    }
    texts
}

fn listeners_and_requests() -> Vec<String> {
    let mut texts = Vec::new();
    let mut world = World::new();
    world.listen();
    let near = &mut world.near;
    let ids: Vec<_> = (0..3).map(|_| near.drive.create_id(Some(near.channel), PortSpace::Tcp).unwrap()).collect();
    near.drive.bind(ids[0], NEAR.parse().unwrap()).unwrap();
    texts.push(text(&near.drive.bind(ids[1], NEAR.parse().unwrap()).unwrap_err()));
    texts.push(text(&near.drive.bind(ids[1], "10.0.0.9:7471".parse().unwrap()).unwrap_err()));
    texts.push(text(&near.drive.bind(ids[2], "10.0.0.9:7471".parse().unwrap()).unwrap_err()));
    texts.push(text(&near.drive.establish(ids[0]).unwrap_err()));
    let mut local = Drive::new(world.fabric.host(&[[127, 0, 0, 1].into()]).device(), Limits::default());
    let channel = local.open_channel(Acks::OnDelivery).unwrap();
    let id = local.create_id(Some(channel), PortSpace::Tcp).unwrap();
    local.bind(id, "127.0.0.1:7471".parse().unwrap()).unwrap();
    texts.push(text(&local.listen(id, 8).unwrap_err()));

    let mut small = Drive::new(world.near.host.device(), Limits { ids: 1, ..Limits::default() });
    let channel = small.open_channel(Acks::OnDelivery).unwrap();
    small.create_id(Some(channel), PortSpace::Tcp).unwrap();
    texts.push(text(&small.create_id(Some(channel), PortSpace::Tcp).unwrap_err()));

    let mut world = World::new();
    let (client, _server) = world.connected(param());
    world.near.host.remove_device();
    let _removal = world.until(|near, _| near.drive.next_event(near.channel));
    texts.push(text(&world.near.drive.disconnect(client.id, Time::NEVER).unwrap_err()));
    texts
}

fn memory(made: &Made, bytes: &[u8], access: Access) -> Mr {
    made.pd.register(bytes.to_vec(), access).unwrap()
}

fn completions() -> Vec<String> {
    let mut texts = Vec::new();
    let mut of = |prepare: &dyn Fn(&mut World, &mut Made, &mut Made)| {
        let mut world = World::new();
        let (mut client, mut server) = world.connected(param());
        prepare(&mut world, &mut client.attached, &mut server.attached);
        world.fabric.advance_by(Duration::from_secs(60));
        let done = client.attached.cq.poll_one().unwrap().expect("a completion");
        texts.push(text(&done.status));
    };
    let send = |made: &mut Made| {
        let mr = memory(made, b"hello", Access::LOCAL_WRITE);
        made.qp.post_send(SendWr::send(1, mr.sge(0..5))).unwrap();
    };
    of(&|world, here, _| {
        world.far.host.set_link(false);
        send(here);
    });
    of(&|_, here, _| send(here)); // no receive
    of(&|_, here, there| {
        let target = memory(there, &[0; 4], Access::LOCAL_WRITE);
        there.qp.post_recv(1, target.sge(0..4)).unwrap();
        send(here);
    });
    of(&|_, here, there| {
        let target = memory(there, &[0; 5], Access::LOCAL_WRITE); // without REMOTE_WRITE
        let mr = memory(here, b"hello", Access::LOCAL_WRITE);
        let remote = Remote { addr: target.addr(), rkey: target.rkey() };
        here.qp.post_send(SendWr::write(1, mr.sge(0..5), remote)).unwrap();
    });

    let mut world = World::new();
    let (mut client, _server) = world.connected(param());
    let mr = memory(&client.attached, &[0; 5], Access::LOCAL_WRITE);
    client.attached.qp.post_recv(1, mr.sge(0..5)).unwrap();
    world.near.drive.disconnect(client.id, Time::NEVER).unwrap();
    texts.push(text(&client.attached.cq.poll_one().unwrap().expect("a completion").status));
    texts
}

fn data_path() -> Vec<String> {
    let mut texts = Vec::new();
    let mut world = World::with(Config { lock_limit: Some(1 << 20), ..Config::default() }, Transport::InfiniBand);
    let id = world.id();
    world.near.drive.bind(id, NEAR.parse().unwrap()).unwrap();
    let caps = Caps { max_inline: 1024, ..Caps::default() };
    texts.push(text(&world.near.drive.qp(id).caps(caps).attach().unwrap_err()));
    let (caps, timer) = (Caps { max_recv_wr: 1, ..Caps::default() }, RnrTimer::at_least(Duration::from_millis(1)));
    let attrs = QpAttrs { min_rnr_timer: Some(timer), ..Default::default() };
    let mut made: Made = world.near.drive.qp(id).caps(caps).attrs(attrs).attach().unwrap();
    let error = made.pd.register(vec![0; 2 << 20], Access::LOCAL_WRITE).unwrap_err();
    texts.push(text(&error));
    let read_only = memory(&made, b"hello", Access::empty());
    let mr = memory(&made, b"hello", Access::LOCAL_WRITE);
    texts.push(text(&made.qp.post_send(SendWr::send(1, mr.sge(0..5))).unwrap_err()));
    texts.push(text(&made.qp.post_recv(1, mr.sge(0..6)).unwrap_err()));
    texts.push(text(&made.qp.post_recv(1, read_only.sge(0..5)).unwrap_err()));
    made.qp.post_recv(1, mr.sge(0..5)).unwrap();
    texts.push(text(&made.qp.post_recv(2, mr.sge(0..5)).unwrap_err()));
    texts.push(text(&mr.deregister().unwrap_err()));
    let far = world.listen();
    let foreign = world.far.drive.device_mut().alloc_pd(far).unwrap();
    let mut mr = memory(&made, b"hello", Access::LOCAL_WRITE);
    texts.push(text(&mr.reregister(Change::default().to_pd(foreign), Policy::default()).result.unwrap_err()));
    texts
}

fn opening() -> Vec<String> {
    let node = || "/dev/infiniband/rdma_cm".into();
    let errors = [
        OpenError::NoModule,
        OpenError::NoNode(node()),
        OpenError::WrongNode(node()),
        OpenError::NoPermission(node()),
        OpenError::NoLibrary("libibverbs.so.1: cannot open shared object file: No such file or directory".to_owned()),
        OpenError::NoDevice,
        OpenError::WaitsForIbacm("/run/ibacm.sock".into()),
        OpenError::WriteRefused(Errno::EACCES),
    ];
    errors.iter().map(text).collect()
}

#[test]
fn the_guide_quotes_the_texts_that_users_read() {
    let guide = include_str!("../../../docs/errors.md");
    let quoted: BTreeSet<&str> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(quoted, _)| quoted)
        .collect();
    let provoked = [connects(), listeners_and_requests(), completions(), data_path(), opening()].concat();
    let provoked: BTreeSet<&str> = provoked.iter().map(String::as_str).collect();
    let (missing, invented): (Vec<_>, Vec<_>) =
        (provoked.difference(&quoted).collect(), quoted.difference(&provoked).collect());
    assert!(missing.is_empty() && invented.is_empty(), "not in the guide: {missing:#?}\nnot provoked: {invented:#?}");
}
