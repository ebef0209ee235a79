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
    let mut rdma = ByteListener::new(rdma, MessagesConfig::default(), Options::default());
    let end = rdma.end();
    // TCP sends at once too, if it can.
    let tcp = tcp.tap_io(|stream| drop(stream.set_nodelay(true)));
    let by_rdma = serve_http(rdma, service.clone()).into_future();
    tokio::select! {
        served = async { tokio::try_join!(by_rdma, serve_http(tcp, service).into_future()) } => served.map(drop),
        error = end => Err(error),
    }
}
