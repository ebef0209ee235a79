//! A program that uses TCP and RDMA: TCP is turmoil's, RDMA that of the simulator. They share clock, addresses and partitions.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use cmid_tokio::proto::Time;
use cmid_tokio::sim::{Config, Fabric, Guard, Host, Rule, SimDevice};
use cmid_tokio::{Channel, Listener, Options};
use common::channels::CONFIG;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};
use turmoil::net::{TcpListener, TcpStream};
use turmoil::{Builder, Sim};

const TCP_PORT: u16 = 80;
const LIMIT: Duration = Duration::from_millis(100);

/// Both networks. turmoil steps the hosts by a millisecond; the fabric follows.
struct Networks {
    sim: Sim<'static>,
    fabric: Fabric,
}

impl Networks {
    fn new() -> Self {
        let sim = Builder::new().enable_tokio_io().max_message_latency(Duration::from_millis(2)).rng_seed(7).build();
        Networks { sim, fabric: Fabric::new(Config::default()) }
    }

    /// Returns the host of the fabric that has the address of a host of turmoil.
    fn host(&self, name: &str) -> Host {
        self.fabric.host(&[self.sim.lookup(name)])
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.sim.elapsed() + span;
        while self.sim.elapsed() < end {
            self.sim.step().unwrap();
            self.fabric.advance_to(Time::ZERO.after(self.sim.elapsed()));
        }
    }

    /// Separates two hosts in both networks, until [`Sim::repair`] and the drop of the guard.
    fn partition(&self, [a, b]: [(&str, &Host); 2]) -> Guard {
        self.sim.partition(a.0, b.0);
        self.fabric.rule(Rule::cut().from(a.1).to(b.1))
    }
}

/// Tells each client over TCP the port at which it is served over RDMA, and sends back a message there.
async fn serve(device: SimDevice, address: SocketAddr) -> turmoil::Result {
    let mut listener = Listener::bind(device, address)?;
    let port = listener.local_addr()?.port();
    tokio::task::spawn_local(async move {
        while let Ok(incoming) = listener.accept().await {
            tokio::task::spawn_local(async move {
                let options = Options { timeout: LIMIT, ..Options::default() };
                let mut channel = Channel::accept(incoming, CONFIG, &options).await?;
                while let Some(message) = channel.recv().await? {
                    channel.send(&message).await?;
                }
                channel.finish().await
            });
        }
    });
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, TCP_PORT)).await?;
    loop {
        listener.accept().await?.0.write_u16(port).await?;
    }
}

/// Asks over TCP for the port.
async fn ask() -> std::io::Result<u16> {
    TcpStream::connect(("server", TCP_PORT)).await?.read_u16().await
}

/// Sends a message over RDMA and gets it back.
async fn talk(device: SimDevice, server: SocketAddr) -> std::io::Result<()> {
    let mut channel =
        Channel::connect(device, server, CONFIG, &Options { timeout: LIMIT, ..Options::default() }).await?;
    channel.send(b"hello").await?;
    assert_eq!(channel.recv().await?.as_deref(), Some(&b"hello"[..]));
    channel.close(LIMIT).await
}

/// An attempt of a client: whether it has reached the server over TCP and over RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reached {
    tcp: bool,
    rdma: bool,
}

#[test]
fn tcp_of_turmoil_and_rdma_have_the_same_clock_addresses_and_partitions() {
    let mut networks = Networks::new();
    let [server, client] = ["server", "client"].map(|name| networks.host(name));
    let (address, host) = (SocketAddr::new(networks.sim.lookup("server"), 0), server.clone());
    networks.sim.host("server", move || serve(host.device(), address));
    let attempts = Rc::new(RefCell::new(Vec::new()));
    let (noted, host, fabric) = (Rc::clone(&attempts), client.clone(), networks.fabric.clone());
    networks.sim.client("client", async move {
        let mut port = 0;
        loop {
            let behind = turmoil::sim_elapsed().unwrap().abs_diff(fabric.now().since(Time::ZERO));
            assert!(behind <= Duration::from_millis(1), "the clocks differ by {behind:?}");
            let asked = timeout(LIMIT, ask()).await;
            if let Ok(Ok(told)) = asked {
                port = told;
            }
            let server = SocketAddr::new(turmoil::lookup("server"), port);
            let talked = timeout(2 * LIMIT, talk(host.device(), server)).await;
            noted.borrow_mut().push(Reached { tcp: matches!(asked, Ok(Ok(_))), rdma: matches!(talked, Ok(Ok(()))) });
            sleep(LIMIT / 10).await;
        }
    });
    // The attempt that is under way at a change does not count.
    let all_are = |networks: &mut Networks, reached: bool| {
        networks.run_for(5 * LIMIT);
        attempts.borrow_mut().clear();
        networks.run_for(20 * LIMIT);
        let attempts = attempts.borrow();
        assert!(attempts.len() >= 5, "{attempts:?}");
        assert!(attempts.iter().all(|it| *it == Reached { tcp: reached, rdma: reached }), "{attempts:?}");
    };
    all_are(&mut networks, true);
    let cut = networks.partition([("server", &server), ("client", &client)]);
    all_are(&mut networks, false);
    networks.sim.repair("server", "client");
    drop(cut);
    all_are(&mut networks, true);
}
