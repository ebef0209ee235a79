//! An HTTP/2 client on the bytes of a channel, as on those of a TCP stream.

use std::io;
use std::net::SocketAddr;

use cmid_tokio::proto::datapath::DataPath;
use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::{ByteStream, Channel, Options};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, client};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

/// Connects to the RDMA listener of [`http::serve`](crate::http::serve).
///
/// # Errors
/// As [`Channel::connect`].
pub async fn connect<D: DataPath>(device: D, peer: SocketAddr) -> io::Result<ByteStream<D>> {
    Ok(ByteStream::new(Channel::connect(device, peer, MessagesConfig::default(), &Options::default()).await?))
}

/// Posts so many bodies one after the other by HTTP/2, of different lengths up to 100 kB, compares the answers, and closes
/// the connection. Returns the number of bytes that came back.
///
/// # Errors
/// A request has failed, or an answer differs.
pub async fn post(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, requests: u32) -> io::Result<usize> {
    let handshake = client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let mut bytes = 0;
    for number in 0..requests {
        let body = Bytes::from(vec![number as u8; number as usize * 997 % 100_000]);
        let request = Request::post("http://echo/").body(Full::new(body.clone())).map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let answer = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        if answer != body {
            return Err(io::Error::other(format!("body {number} came back as {} bytes", answer.len())));
        }
        bytes += answer.len();
    }
    // The connection ends with its last sender: a goodbye of HTTP, and one of the channel.
    drop(sender);
    connection.await?.map_err(io::Error::other)?;
    Ok(bytes)
}
