//! An HTTP/2 client, over RDMA or TCP by its connector.

use std::fmt::Display;
use std::io;

use axum::body::{Body, Bytes};
use axum::http::Request;
use http_body_util::BodyExt;
use hyper_util::client::legacy::{Client, connect::Connect, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;

/// Returns a connector of TCP that sends at once, as RDMA does: the end of a body would wait for the ack of its beginning,
/// which the peer delays by 40 ms.
#[must_use]
pub fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector
}

/// Posts so many bodies one after the other by HTTP/2, of different lengths up to 100 kB, and compares the answers. Returns the
/// number of bytes that came back.
///
/// # Errors
/// The connect or a request has failed, or an answer differs.
pub async fn post(
    connector: impl Connect + Clone + Send + Sync + 'static,
    server: impl Display,
    requests: u32,
) -> io::Result<usize> {
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build::<_, Body>(connector);
    let mut bytes = 0;
    for number in 0..requests {
        let body = Bytes::from(vec![number as u8; number as usize * 997 % 100_000]);
        let request =
            Request::post(format!("http://{server}/")).body(Body::from(body.clone())).map_err(io::Error::other)?;
        let response = client.request(request).await.map_err(io::Error::other)?;
        let answer = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        if answer != body {
            return Err(io::Error::other(format!("body {number} came back as {} bytes", answer.len())));
        }
        bytes += answer.len();
    }
    Ok(bytes)
}
