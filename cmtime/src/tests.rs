//! A side without the other.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use cmid_sim::{Clock, Config, Fabric};
use indicatif::ProgressBar;

use crate::args::{DriverName, Plan, Role};
use crate::run_on;
use crate::side::{Alone, Outcome};
use crate::tally::Tally;

const PLAN: Plan = Plan {
    connections: 8,
    in_flight: None,
    bind: None,
    retries: 2,
    timeout: Duration::from_millis(200),
    patience: Duration::from_secs(5),
    deadline: Duration::from_secs(20),
    base_qpn: None,
};

/// The server's address; another host has 10.0.0.2.
fn run(driver: DriverName, server: &str, plan: Plan) -> Tally {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
    let (client, _other) = (fabric.host(&[one]), fabric.host(&[other]));
    let server: SocketAddr = server.parse().unwrap();
    let role = Role::Client(server);
    match run_on(driver, client.device(), role, plan, ProgressBar::hidden(), &Alone::default(), || {}).unwrap() {
        Outcome::Client(tally) => *tally,
        Outcome::Server(_) => panic!("a client is no server"),
    }
}

fn reasons(tally: &Tally) -> Vec<(&str, u64)> {
    tally.failed.iter().map(|(why, &count)| (why.as_str(), count)).collect()
}

#[test]
fn nobody_listens() {
    for driver in [DriverName::Mio, DriverName::Epoll] {
        for in_flight in [None, Some(3)] {
            let tally = run(driver, "10.0.0.2:7471", Plan { in_flight, ..PLAN });
            assert_eq!(reasons(&tally), [("connect: REJECTED with status 8", 8)]);
            assert_eq!((tally.finished(), tally.unfinished, tally.never_begun), (0, 0, 0));
        }
    }
}

/// It is tried again as often as wanted, and then given up.
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

/// What is under way at the deadline has not finished, and has not failed either.
#[test]
fn the_deadline() {
    let timeout = Duration::from_secs(60);
    let plan = Plan { deadline: Duration::from_millis(50), in_flight: Some(3), timeout, ..PLAN };
    let begin = Instant::now();
    for driver in [DriverName::Mio, DriverName::Epoll] {
        let tally = run(driver, "10.0.0.9:7471", plan);
        assert_eq!((tally.unfinished, tally.never_begun, tally.failures(), tally.finished()), (3, 5, 0, 0));
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

/// Nobody can connect any more, so there is nothing to wait for.
#[test]
fn the_device_of_a_server_goes() {
    let plan = Plan { deadline: Duration::from_secs(600), ..PLAN };
    for driver in [DriverName::Mio, DriverName::Epoll] {
        let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
        let ip: IpAddr = "10.0.0.2".parse().unwrap();
        let host = fabric.host(&[ip]);
        let (role, alone) = (Role::Server((ip, 7471).into()), Alone::default());
        let begin = Instant::now();
        let ended =
            run_on(driver, host.device(), role, plan, ProgressBar::hidden(), &alone, || host.remove_device()).unwrap();
        let Outcome::Server(served) = ended else { panic!("a server is no client") };
        assert_eq!((served.ended, served.lost.as_deref()), (0, Some("DEVICE_REMOVAL with status 0")));
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    }
}
