//! HTTP/1 on byte streams: an axum service, and hyper's client.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::sim::{Rule, SimDevice};
use cmid_tokio::{ByteListener, Connector, Options};
use common::{LIMIT, World, ends};
use http_body_util::BodyExt;
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tower_service::Service as _;

/// More than HTTP and a channel keep for a side that does not read.
const LEN: usize = 1 << 20;

/// Longer than the silence that a peer permits.
const PAUSE: Duration = Duration::from_secs(60);

fn listener(world: &World) -> ByteListener<SimDevice> {
    ByteListener::new(world.listener(), MessagesConfig::default(), Options::default())
}

fn client(world: &World) -> Client<Connector<SimDevice>, Body> {
    let options = Options { timeout: LIMIT, ..Options::default() };
    let connector = Connector::new(world.client.device(), MessagesConfig::default(), options);
    Client::builder(TokioExecutor::new()).build(connector)
}

fn uri() -> Uri {
    Uri::from_static("http://10.0.0.2:7471/")
}

#[tokio::test(start_paused = true)]
async fn a_service_that_reads_a_body_late_is_alive_for_its_client() {
    let world = World::paused();
    let late = async |body: Body| {
        sleep(PAUSE).await;
        to_bytes(body, LEN).await.map_or_else(|failed| failed.to_string(), |body| body.len().to_string())
    };
    tokio::spawn(axum::serve(listener(&world), Router::new().route("/", post(late))).into_future());
    let request = Request::post(uri()).body(Body::from(vec![7; LEN])).unwrap();
    let answer = client(&world).request(request).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), LEN.to_string());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_an_answer_late_is_alive_for_the_service() {
    let world = World::paused();
    let service = Router::new().route("/", get(async || vec![7; LEN]));
    tokio::spawn(axum::serve(listener(&world), service).into_future());
    let answer = client(&world).get(uri()).await.unwrap();
    sleep(PAUSE).await;
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), LEN);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_ends_answers_first_and_a_handler_knows_its_peer() {
    let world = World::paused();
    let (end, ended) = oneshot::channel::<()>();
    let late = async |ConnectInfo(peer): ConnectInfo<SocketAddr>| {
        sleep(PAUSE).await;
        peer.ip().to_string().repeat(LEN / 8)
    };
    let service = Router::new().route("/", get(late)).into_make_service_with_connect_info::<SocketAddr>();
    let served =
        axum::serve(listener(&world).tap_io(|_| ()), service).with_graceful_shutdown(async { drop(ended.await) });
    let served = tokio::spawn(served.into_future());
    let client = client(&world);
    let answer = tokio::spawn(async move { client.get(uri()).await.unwrap().into_body().collect().await });
    sleep(PAUSE / 2).await;
    end.send(()).unwrap();
    served.await.unwrap().unwrap();
    let answer = answer.await.unwrap().unwrap().to_bytes();
    assert!(answer == "10.0.0.1".repeat(LEN / 8));
}

#[tokio::test(start_paused = true)]
async fn a_client_learns_that_no_service_is_there_or_that_it_is_gone_in_the_middle_and_connects_again() {
    let world = World::paused();
    let client = client(&world);
    assert!(ends(client.get(uri())).await.unwrap_err().is_connect());
    let service = Router::new().route("/", get(async || vec![7; LEN]));
    tokio::spawn(axum::serve(listener(&world), service).into_future());
    let mut answer = ends(client.get(uri())).await.unwrap().into_body();
    assert!(ends(answer.frame()).await.unwrap().is_ok());
    let cut = world.fabric.rule(Rule::cut().between(&world.client, &world.server));
    assert!(ends(answer.collect()).await.is_err());
    assert!(ends(client.get(uri())).await.unwrap_err().is_connect());
    drop(cut);
    let answer = ends(client.get(uri())).await.unwrap();
    assert_eq!(ends(answer.into_body().collect()).await.unwrap().to_bytes().len(), LEN);
}

#[tokio::test(start_paused = true)]
async fn a_service_ends_with_the_device_of_its_listener_and_another_one_goes_on() {
    let world = World::paused();
    let service = || Router::new().route("/", get(async || "hello"));
    let mut first = listener(&world);
    let end = first.end();
    let told = tokio::spawn(async move {
        let (told, tells) = oneshot::channel();
        let end = async move { drop(told.send(end.await)) };
        axum::serve(first, service()).with_graceful_shutdown(end).await.unwrap();
        tells.await.unwrap()
    });
    assert!(ends(client(&world).get(uri())).await.is_ok());
    world.server.remove_device();
    let error = ends(told).await.unwrap();
    assert_eq!(error.raw_os_error(), Some(19), "ENODEV, and not {error}");
    world.server.add_device();
    let mut second = listener(&world);
    let (replaced, _end) = (second.end(), second.end());
    tokio::spawn(axum::serve(second, service()).into_future());
    assert!(ends(client(&world).get(uri())).await.is_ok());
    assert!(tokio::time::timeout(PAUSE, replaced).await.is_err(), "it waits");
}

#[tokio::test(start_paused = true)]
async fn a_connector_takes_the_host_and_port_of_a_uri_of_http_and_of_nothing_else() {
    let world = World::paused();
    let mut connector = Connector::new(world.client.device(), MessagesConfig::default(), Options::default());
    for (uri, kind) in [
        ("http://10.0.0.2:7471/", ErrorKind::ConnectionRefused),
        // Port 80, of no route.
        ("http://[fe80::1]", ErrorKind::NetworkUnreachable),
        ("https://10.0.0.2:7471/", ErrorKind::InvalidInput),
        ("/", ErrorKind::InvalidInput),
    ] {
        let error = ends(connector.call(Uri::from_static(uri))).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{uri}: {error}");
    }
}
