//! The echo on the simulator, in tokio's paused time.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use cmid_tokio::Listener;
use cmid_tokio::sim::{Config, Fabric};

#[tokio::test(start_paused = true)]
async fn clients_get_their_messages_back_whoever_gives_up_and_a_server_that_is_gone_is_an_error() {
    let fabric = Fabric::new(Config::default());
    tokio::spawn(cmid_tokio::advance_with_clock(fabric.clone()));
    let [client, server] = ["10.0.0.1", "10.0.0.2"].map(|addr| fabric.host(&[addr.parse().unwrap()]));
    let addr = "10.0.0.2:7471".parse().unwrap();
    let serving = tokio::spawn(on_tokio::serve(Listener::bind(server.device(), addr).unwrap()));
    let ping = |messages| on_tokio::ping(client.device(), addr, messages);
    // 1 to 64 bytes, twice; and none.
    assert_eq!(tokio::try_join!(ping(128), ping(64), ping(0)).unwrap(), (4160, 2080, 0));
    for after in [0, 1, 2, 50].map(Duration::from_millis) {
        assert!(on_tokio::give_up(client.device(), addr, after).await.unwrap() < Duration::from_millis(1));
    }
    assert_eq!(ping(1).await.unwrap(), 1);
    serving.abort();
    let _gone = serving.await;
    assert_eq!(ping(1).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn one_side_alone_on_the_simulated_fabric_is_an_error() {
    for part in ["serve", "ping"] {
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_on-tokio")).arg(part).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && said.contains("only `both` has a peer"), "{said}");
    }
}
