//! How long calls block on soft-iWARP (docs/semantics.md, 16.2): a destroy and the end of a blocking connect while the
//! peer does not answer, and a connect to a host that does not answer.
//!
//! Run it by `cargo xtask softroce --transport siw -- target/release/kernel-iwarp-waits`. CMID_BACKEND selects the
//! backend of cmid-verbs. It needs the VM's devices, and changes `net.ipv4.tcp_syn_retries` and veth1.
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use cmid_blocking::{Connection, Options};
use cmid_proto::datapath::{Attaching, Caps, CreateError, prelude::*};
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Drive, Errno, EventKind, IdKey, Limits, Next, PortSpace, Time};
use cmid_verbs::{Backend, Cq, Pd, Qp, Verbs};

type Done<T = ()> = Result<T, Box<dyn Error>>;
type Queues = (Qp, Cq, Pd);

/// The limit of a wait for an event of a lookup.
const SOON: Duration = Duration::from_secs(5);
/// More than a call takes that does not wait.
const AT_ONCE: Duration = Duration::from_secs(2);
/// `MPAREQ_TIMEOUT` of siw is 10 seconds.
const ANSWER: std::ops::Range<Duration> = Duration::from_secs(7)..Duration::from_secs(13);

fn main() -> Done {
    let backend: Backend = std::env::var("CMID_BACKEND").map_or(Ok(Backend::default()), |name| name.parse())?;
    let mut server = Drive::new(Verbs::open_with(backend)?, Limits::default());
    let channel = server.open_channel(Acks::OnDelivery)?;
    let listener = server.create_id(Some(channel), PortSpace::Tcp)?;
    let peer = SocketAddr::from(([10, 99, 0, 2], 7900));
    server.bind(listener, peer)?;
    server.listen(listener, 16)?;

    let mut client = Drive::new(Verbs::open_with(backend)?, Limits::default());
    let on = client.open_channel(Acks::OnDelivery)?;
    let waits = |what: &str, took: Duration, expected: &std::ops::Range<Duration>| -> Done {
        println!("{what}: {:.3} s", took.as_secs_f64());
        let is_as_expected = expected.contains(&took);
        is_as_expected.then_some(()).ok_or_else(|| format!("{what}: {took:?}, expected {expected:?}").into())
    };

    let (id, queues) = connecting(&mut client, on, peer)?;
    let took = timed(|| client.destroy(id, Time::NEVER).map(drop))?;
    waits("a destroy that waits for the answer as a request", took, &(Duration::ZERO..AT_ONCE))?;
    let began = Instant::now();
    expect(&mut client, on, EventKind::Destroyed, ANSWER.end)?;
    waits("its event", began.elapsed(), &ANSWER)?;
    drop(queues);

    let (id, queues) = connecting(&mut client, on, peer)?;
    let took = timed(|| client.destroy_now(id))?;
    waits("a destroy at once, with a handle of the QP", took, &ANSWER)?;
    drop(queues);

    let (id, queues) = connecting(&mut client, on, peer)?;
    drop(queues);
    let took = timed(|| client.destroy_now(id))?;
    waits("the same without one: the QP is destroyed first", took, &ANSWER)?;

    // Nobody answers: the connect ends by its time-out, and then its id is destroyed.
    let options = Options { timeout: Duration::from_millis(500), ..Options::default() };
    let took = timed(|| match Connection::connect(Verbs::open_with(backend)?, peer, &options, attach) {
        Ok(_) => Err(Box::<dyn Error>::from("it is connected")),
        Err(error) => {
            println!("{error}");
            Ok(())
        }
    })?;
    waits("a blocking connect with a time-out of 0.5 s", took, &ANSWER)?;

    // No host answers: TCP decides how long the call of connect blocks.
    run("sysctl", &["-q", "-w", "net.ipv4.tcp_syn_retries=1"])?;
    let (id, _queues) = routed(&mut client, on, SocketAddr::from(([10, 98, 0, 2], 7900)))?;
    run("tc", &["qdisc", "add", "dev", "veth1", "root", "netem", "loss", "100%"])?;
    let mut result = Ok(());
    let took = timed(|| {
        result = client.connect(id, ConnParam::default(), &[], Time::NEVER);
        Ok::<_, Errno>(())
    })?;
    println!("{result:?}");
    waits("a connect to a host that does not answer, with one retry of TCP", took, &(AT_ONCE..ANSWER.end))
}

fn run(program: &str, arguments: &[&str]) -> Done {
    let status = Command::new(program).args(arguments).status()?;
    status.success().then_some(()).ok_or_else(|| format!("{program}: {status}").into())
}

fn timed<E>(call: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let began = Instant::now();
    call()?;
    Ok(began.elapsed())
}

fn attach(device: &mut Verbs, to: Attaching<'_>) -> Result<Queues, CreateError> {
    let pd = device.alloc_pd(to.id())?;
    let cq = device.create_cq(to.id(), 4)?;
    let qp = device.create_qp(to, &pd, &cq, &cq, Caps { max_send_wr: 1, max_recv_wr: 1, ..Caps::default() })?;
    Ok((qp, cq, pd))
}

/// An id with a route and a QP.
fn routed(drive: &mut Drive<Verbs>, on: ChannelKey, peer: SocketAddr) -> Done<(IdKey, Queues)> {
    let id = drive.create_id(Some(on), PortSpace::Tcp)?;
    drive.resolve_addr(id, None, peer, Time::NEVER)?;
    expect(drive, on, EventKind::Cm(CmEvent::AddrResolved), SOON)?;
    drive.resolve_route(id, Time::NEVER)?;
    expect(drive, on, EventKind::Cm(CmEvent::RouteResolved), SOON)?;
    Ok((id, drive.attach_qp(id, attach)?))
}

/// An id that connects to a listener that does not answer.
fn connecting(drive: &mut Drive<Verbs>, on: ChannelKey, peer: SocketAddr) -> Done<(IdKey, Queues)> {
    let (id, queues) = routed(drive, on, peer)?;
    drive.connect(id, ConnParam::default(), &[], Time::NEVER)?;
    Ok((id, queues))
}

/// Waits for an event of this kind.
fn expect(drive: &mut Drive<Verbs>, on: ChannelKey, kind: EventKind, limit: Duration) -> Done {
    let began = Instant::now();
    while began.elapsed() < limit {
        drive.readable(on);
        while drive.run(16) == Next::Again {}
        if let Some(event) = drive.next_event(on) {
            let is_it = event.kind == kind;
            return is_it.then_some(()).ok_or_else(|| format!("{} instead of {kind}", event.kind).into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("no {kind} within {limit:?}").into())
}
