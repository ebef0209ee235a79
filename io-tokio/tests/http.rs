//! HTTP/1 on byte streams: an axum service, and hyper's client.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::sim::SimDevice;
use cmid_tokio::{ByteListener, ByteStream, Channel, Options};
use common::{World, server};
use http_body_util::BodyExt;
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// More than HTTP and a channel keep for a side that does not read.
const LEN: usize = 1 << 20;

/// Longer than the silence that a peer permits.
const PAUSE: Duration = Duration::from_secs(60);

fn listener(world: &World) -> ByteListener<SimDevice> {
    ByteListener::new(world.listener(), MessagesConfig::default(), Options::default())
}

async fn client(world: &World) -> SendRequest<Body> {
    let (config, options) = (MessagesConfig::default(), Options::default());
    let channel = Channel::connect(world.client.device(), server(), config, &options).await.unwrap();
    let (sender, connection) = handshake(TokioIo::new(ByteStream::new(channel))).await.unwrap();
    tokio::spawn(connection);
    sender
}

#[tokio::test(start_paused = true)]
async fn a_service_that_reads_a_body_late_is_alive_for_its_client() {
    let world = World::paused();
    let late = async |body: Body| {
        sleep(PAUSE).await;
        to_bytes(body, LEN).await.map_or_else(|failed| failed.to_string(), |body| body.len().to_string())
    };
    tokio::spawn(axum::serve(listener(&world), Router::new().route("/", post(late))).into_future());
    let request = Request::post("/").header("host", "server").body(Body::from(vec![7; LEN])).unwrap();
    let answer = client(&world).await.send_request(request).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), LEN.to_string());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_an_answer_late_is_alive_for_the_service() {
    let world = World::paused();
    let service = Router::new().route("/", get(async || vec![7; LEN]));
    tokio::spawn(axum::serve(listener(&world), service).into_future());
    let request = Request::get("/").header("host", "server").body(Body::empty()).unwrap();
    let answer = client(&world).await.send_request(request).await.unwrap();
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
    let mut sender = client(&world).await;
    let request = Request::get("/").header("host", "server").body(Body::empty()).unwrap();
    let answer = tokio::spawn(async move { sender.send_request(request).await.unwrap().into_body().collect().await });
    sleep(PAUSE / 2).await;
    end.send(()).unwrap();
    served.await.unwrap().unwrap();
    let answer = answer.await.unwrap().unwrap().to_bytes();
    assert!(answer == "10.0.0.1".repeat(LEN / 8));
}
