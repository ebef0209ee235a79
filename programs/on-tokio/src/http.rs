//! HTTP over RDMA and TCP: one axum service on both listeners.

use std::io;

use axum::body::Bytes;
use axum::routing::post as on_post;
use axum::serve::ListenerExt as _;
use axum::{Router, serve as serve_http};
use cmid_tokio::proto::datapath::DataPath;
use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::{ByteListener, Listener, Options};
use tokio::net::TcpListener;

/// Answers each request on both listeners with its body. Does not end.
///
/// # Errors
/// A listener has failed.
pub async fn serve<D: DataPath + 'static>(rdma: Listener<D>, tcp: TcpListener) -> io::Result<()> {
    let service = Router::new().route("/", on_post(|body: Bytes| async move { body }));
    let rdma = ByteListener::new(rdma, MessagesConfig::default(), Options::default());
    // TCP sends at once too, if it can.
    let tcp = tcp.tap_io(|stream| drop(stream.set_nodelay(true)));
    tokio::try_join!(serve_http(rdma, service.clone()).into_future(), serve_http(tcp, service).into_future())?;
    Ok(())
}
