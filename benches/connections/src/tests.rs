//! Tests of one side without the other.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use cmid_harness::{Driver as _, DriverName, Make as _, OnEpoll};
use cmid_proto::{Acks, CmEvent, ConnParam, PortSpace, Time};
use cmid_sim::{Clock, Config, Fabric};

use crate::args::{Plan, Role};
use crate::on_driver::run_on;
use crate::oob::{self, Oob};
use crate::point::Point;
use crate::side::Outcome;
use crate::tally::Tally;

const PLAN: Plan = Plan {
    connections: 8,
    bind: None,
    retries: 2,
    timeout: Duration::from_millis(200),
    patience: Duration::from_secs(5),
    deadline: Duration::from_secs(20),
    base_qpn: None,
    in_step: false,
};

/// The server's address; another host has 10.0.0.2.
fn run(driver: DriverName, server: &str, plan: Plan) -> Tally {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
    let (client, _other) = (fabric.host(&[one]), fabric.host(&[other]));
    let server: SocketAddr = server.parse().unwrap();
    let role = Role::Client(server);
    match run_on(driver, client.device(), role, plan, &mut |_| Ok(())).unwrap() {
        Outcome::Client(tally) => *tally,
        Outcome::Server(_) => panic!("a client is no server"),
    }
}

fn reasons(tally: &Tally) -> Vec<(&str, u64)> {
    tally.failed.iter().map(|(reason, &count)| (reason.as_str(), count)).collect()
}

#[test]
fn nobody_listens() {
    for driver in DriverName::ALL {
        let tally = run(driver, "10.0.0.2:7471", PLAN);
        assert_eq!(reasons(&tally), [("connect: REJECTED with status 8", 8)]);
        assert_eq!((tally.finished(), tally.unfinished), (0, 0));
    }
}

/// The address is retried as often as configured, then the connection fails.
#[test]
fn nobody_has_the_address() {
    let begin = Instant::now();
    let tally = run(DriverName::Epoll, "10.0.0.9:7471", PLAN);
    assert_eq!(reasons(&tally), [("resolve addr: ADDR_ERROR with status -110", 8)]);
    assert!(begin.elapsed() >= PLAN.timeout * 7 / 8 * 3, "{:?}", begin.elapsed());
}

#[test]
fn no_way_leads_there() {
    let tally = run(DriverName::Epoll, "10.7.7.7:7471", PLAN);
    assert_eq!(reasons(&tally), [("resolve addr: resolve_addr failed: ENETUNREACH", 8)]);
}

/// Connections in progress at the deadline count as unfinished, not as failed.
#[test]
fn the_deadline() {
    let timeout = Duration::from_secs(60);
    let plan = Plan { deadline: Duration::from_millis(50), timeout, ..PLAN };
    let begin = Instant::now();
    for driver in DriverName::ALL {
        let tally = run(driver, "10.0.0.9:7471", plan);
        assert_eq!((tally.unfinished, tally.failures(), tally.finished()), (8, 0, 0));
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

/// The server accepts one of two connections, and ends it before it answers the other.
#[test]
fn a_connection_that_ends_while_it_waits_for_the_others_has_failed() {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
    let (client, address) = (fabric.host(&[one]).device(), SocketAddr::from((other, 7471)));
    let mut driver: OnEpoll<_> = OnEpoll::make(fabric.host(&[other]).device()).unwrap();
    let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
    let listener = driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();
    driver.drive().bind(listener, address).and_then(|()| driver.drive().listen(listener, 8)).unwrap();
    let plan = Plan { connections: 2, base_qpn: Some(1000), ..PLAN };
    let run = move || run_on(DriverName::Epoll, client, Role::Client(address), plan, &mut |_| Ok(()));
    let client = thread::spawn(move || run().unwrap());
    let (mut requests, mut established) = (Vec::new(), false);
    while requests.len() < 2 || !established {
        driver.wait(None).unwrap();
        while let Some(event) = driver.drive().next_event(channel) {
            match event.cm() {
                Some(CmEvent::ConnectRequest) if requests.is_empty() => {
                    let param = ConnParam { qp_num: 5, ..ConnParam::default() };
                    driver.drive().accept(event.id, param, &[], Time::NEVER).unwrap();
                    requests.push(event.id);
                }
                Some(CmEvent::ConnectRequest) => requests.push(event.id),
                Some(CmEvent::Established) => established = true,
                _ => panic!("{event:?}"),
            }
        }
    }
    driver.drive().destroy_now(requests[0]).unwrap();
    driver.drive().reject(requests[1], &[]).unwrap();
    let Outcome::Client(tally) = client.join().unwrap() else { panic!("a client is no server") };
    assert_eq!(reasons(&tally), [("connect: REJECTED with status 28", 1), ("disconnect: DISCONNECTED", 1)]);
}

/// Connections are impossible after the removal, so the server ends.
#[test]
fn the_device_of_a_server_goes() {
    let plan = Plan { deadline: Duration::from_secs(600), ..PLAN };
    for driver in DriverName::ALL {
        let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
        let ip: IpAddr = "10.0.0.2".parse().unwrap();
        let host = fabric.host(&[ip]);
        let role = Role::Server((ip, 7471).into());
        let begin = Instant::now();
        let ended = run_on(driver, host.device(), role, plan, &mut |_| {
            host.remove_device();
            Ok(())
        })
        .unwrap();
        let Outcome::Server(served) = ended else { panic!("a server is no client") };
        assert_eq!((served.ended, served.lost.as_deref()), (0, Some("DEVICE_REMOVAL with status 0")));
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    }
}

/// Runs both sides on one fabric, each with its end of a TCP connection on the loopback. Returns the points that each
/// reached.
fn in_step(plan: Plan) -> [(Outcome, Vec<Point>); 2] {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
    let devices = [fabric.host(&[other]).device(), fabric.host(&[one]).device()];
    // An unused port: the listener that finds it is closed again.
    let tcp = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let mut server_oob = Oob::new(Role::Server(tcp), plan.deadline).unwrap();
    let mut client_oob = Oob::new(Role::Client(tcp), plan.deadline).unwrap();
    let [server, client] = devices;
    let run = move |device, role, oob: &mut Oob| {
        let mut been = Vec::new();
        let meet = &mut |point| {
            oob.sync(point)?;
            been.push(point);
            Ok(())
        };
        let outcome = run_on(DriverName::Epoll, device, role, plan, meet);
        (outcome.unwrap(), been)
    };
    let server = thread::spawn(move || run(server, Role::Server((other, 7471).into()), &mut server_oob));
    let client = run(client, Role::Client((other, 7471).into()), &mut client_oob);
    [server.join().unwrap(), client]
}

#[test]
fn both_sides_keep_in_step() {
    for plan in oob::rounds(PLAN) {
        let [(server, at_server), (client, at_client)] = in_step(plan);
        let all = [Point::Ready, Point::Connected, Point::Disconnected];
        assert_eq!((at_server.as_slice(), at_client.as_slice()), (&all[..], &all[..]));
        let (Outcome::Server(served), Outcome::Client(tally)) = (server, client) else { panic!("sides are confused") };
        assert_eq!((served.ended, tally.finished(), tally.failures()), (plan.connections, plan.connections, 0));
    }
    let connections = oob::rounds(PLAN).map(|plan| (plan.connections, plan.base_qpn));
    assert_eq!(connections, [(1, None), (8, None), (8, Some(1000))]);
}

/// The bytes are those of cmtime's steps: the client sends first, and continues when the same byte is sent back.
#[test]
fn the_client_waits_for_its_byte() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let role = Role::Client(listener.local_addr().unwrap());
    let mut oob = Oob::new(role, PLAN.deadline).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    let client = thread::spawn(move || {
        [Point::Ready, Point::Connected, Point::Disconnected].map(|point| oob.sync(point).map_err(|e| e.to_string()))
    });
    let mut byte = [0xff];
    for (expected, answer) in [(0, 0), (12, 12), (14, 12)] {
        theirs.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [expected]);
        assert!(!client.is_finished());
        theirs.write_all(&[answer]).unwrap();
    }
    let wrong = "waiting for the other side to be Disconnected".to_owned();
    assert_eq!(client.join().unwrap(), [Ok(()), Ok(()), Err(wrong)]);
}

/// cmtime's client waits for ever for a failed connection. The end of the TCP connection ends it.
#[test]
fn after_a_failure_no_point_is_reached() {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let ips: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
    let [client, _nobody] = ips.map(|ip| fabric.host(&[ip]));
    let (role, plan) = (Role::Client((ips[1], 7471).into()), Plan { in_step: true, ..PLAN });
    let mut been = Vec::new();
    let meet = &mut |point| {
        been.push(point);
        Ok(())
    };
    let ended = run_on(DriverName::Epoll, client.device(), role, plan, meet).unwrap();
    let Outcome::Client(tally) = ended else { panic!("a client is no server") };
    assert_eq!((tally.failures(), been), (8, vec![Point::Ready]));
}
