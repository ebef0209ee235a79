//! HTTP/2 on the simulator, and on TCP.
#![allow(clippy::unwrap_used, reason = "a test")]

use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::sim::{Config, Fabric};
use cmid_tokio::{Connector, Listener, Options};
use on_tokio::{http, http_client};
use tokio::net::TcpListener;

#[tokio::test(start_paused = true)]
async fn axum_serves_rdma_and_tcp_alike_and_a_server_that_is_gone_is_an_error() {
    let fabric = Fabric::new(Config::default());
    tokio::spawn(cmid_tokio::advance_with_clock(fabric.clone()));
    let [client, server] = ["10.0.0.1", "10.0.0.2"].map(|addr| fabric.host(&[addr.parse().unwrap()]));
    let addr = "10.0.0.2:7471".parse().unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let by_tcp = tcp.local_addr().unwrap();
    let serving = tokio::spawn(http::serve(Listener::bind(server.device(), addr).unwrap(), tcp));
    let post = |requests| {
        let connector = Connector::new(client.device(), MessagesConfig::default(), Options::default());
        http_client::post(connector, addr, requests)
    };
    let post_by_tcp = http_client::post(http_client::tcp(), by_tcp, 120);
    let bytes = |requests: usize| (0..requests).map(|number| number * 997 % 100_000).sum::<usize>();
    let sent = tokio::try_join!(post(120), post(50), post(1), post_by_tcp).unwrap();
    assert_eq!(sent, (bytes(120), bytes(50), 0, bytes(120)));
    serving.abort();
    let _gone = serving.await;
    assert_eq!(post(1).await.unwrap_err().to_string(), "client error (Connect)");
}
