//! How connections end, by both sides and by one.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{self, ErrorKind};
use std::time::Duration;

use cmid_epoll::proto::handshake::DialTo;
use cmid_epoll::proto::{ConnParam, Errno};
use cmid_epoll::sim::{self, Clock, Fabric, Host, SimDevice};
use on_tokio::{Connection, Reactor};

const LIMIT: Duration = Duration::from_secs(5);

/// A connection of two hosts: the client's end, the server's end, and their reactors.
struct Connected {
    client: Connection<SimDevice, ()>,
    server: Connection<SimDevice, ()>,
    client_host: Host,
    _reactors: [Reactor<SimDevice>; 2],
}

async fn connected() -> Connected {
    let fabric = Fabric::new(sim::Config { clock: Clock::Real, ..sim::Config::default() });
    let [client_host, server_host] = ["10.0.0.1", "10.0.0.2"].map(|addr| fabric.host(&[addr.parse().unwrap()]));
    let reactors = [&client_host, &server_host].map(|host| Reactor::new(host.device(), Default::default()).unwrap());
    let mut to = DialTo::new("10.0.0.2:7471".parse().unwrap());
    to.param.qp_num = 1;
    let mut listener = reactors[1].listen(to.peer, 4).unwrap();
    let serve = async {
        let param = ConnParam { qp_num: 2, ..ConnParam::default() };
        listener.accept().await?.accept(param, &[], LIMIT, |_, _| Ok(())).await
    };
    let (client, server) = tokio::try_join!(reactors[0].connect(&to, LIMIT, |_, _| Ok(())), serve).unwrap();
    Connected { client, server, client_host, _reactors: reactors }
}

/// Fails if the future waits for longer than any limit of these tests.
async fn ends<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(2 * LIMIT, future).await.unwrap()
}

#[tokio::test]
async fn both_sides_disconnect() {
    let both = connected().await;
    let (client, server) =
        ends(async { tokio::join!(both.client.disconnect(LIMIT), both.server.disconnect(LIMIT)) }).await;
    client.unwrap();
    server.unwrap();
}

#[tokio::test]
async fn the_peer_confirms_by_a_disconnect_after_closed() {
    let both = connected().await;
    let serve = async {
        both.server.closed().await?;
        both.server.disconnect(LIMIT).await
    };
    let (client, server) = ends(async { tokio::join!(both.client.disconnect(LIMIT), serve) }).await;
    client.unwrap();
    server.unwrap();
    // The connection has ended, so the disconnect does not wait.
    ends(both.client.disconnect(LIMIT)).await.unwrap();
}

#[tokio::test]
async fn the_peer_confirms_by_a_drop() {
    let Connected { client, server, client_host: _client_host, _reactors } = connected().await;
    let serve = async {
        let closed = server.closed().await;
        drop(server);
        closed
    };
    let (client, server) = ends(async { tokio::join!(client.disconnect(LIMIT), serve) }).await;
    client.unwrap();
    server.unwrap();
}

#[tokio::test]
async fn a_peer_that_confirms_nothing_lets_the_limit_pass() {
    let both = connected().await;
    let error = ends(both.client.disconnect(Duration::from_millis(100))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

#[tokio::test]
async fn the_removal_of_the_device_ends_a_disconnect() {
    let both = connected().await;
    let disconnect = both.client.disconnect(LIMIT);
    let remove = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        both.client_host.remove_device();
    };
    let (result, ()) = ends(async { tokio::join!(disconnect, remove) }).await;
    assert_eq!(result.unwrap_err().raw_os_error(), io::Error::from(Errno::ENODEV).raw_os_error());
}
