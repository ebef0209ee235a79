//! HTTP/2 over RDMA: hyper on the bytes of a channel, as it is on a TCP stream.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use cmid_tokio::proto::datapath::DataPath;
use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::{ByteStream, Channel, Listener, Options};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use hyper_util::rt::{TokioExecutor, TokioIo};

/// Answers each request with its body, and each connection in a task of its own. Does not end without an error.
///
/// # Errors
/// The listener has failed, such as by the removal of its device.
pub async fn serve<D: DataPath + 'static>(mut listener: Listener<D>) -> io::Result<()> {
    loop {
        let incoming = listener.accept().await?;
        tokio::spawn(async move {
            let serve = async {
                let channel = Channel::accept(incoming, MessagesConfig::default(), &Options::default()).await?;
                let io = TokioIo::new(ByteStream::new(channel));
                let builder = server::conn::http2::Builder::new(TokioExecutor::new());
                builder.serve_connection(io, service_fn(echo)).await.map_err(io::Error::other)
            };
            if let Err(error) = serve.await {
                eprintln!("a connection has failed: {error:?}");
            }
        });
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Incoming>, Infallible> {
    Ok(Response::new(request.into_body()))
}

/// Connects, posts so many bodies one after the other, of different lengths up to 100 kB, compares the answers, and closes
/// the connection. Returns the number of bytes that came back.
///
/// # Errors
/// The connect or a request has failed, or an answer differs.
pub async fn post<D: DataPath + 'static>(device: D, peer: SocketAddr, requests: u32) -> io::Result<usize> {
    let channel = Channel::connect(device, peer, MessagesConfig::default(), &Options::default()).await?;
    let io = TokioIo::new(ByteStream::new(channel));
    let handshake = client::conn::http2::handshake(TokioExecutor::new(), io);
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
