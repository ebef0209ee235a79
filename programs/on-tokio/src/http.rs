//! HTTP over RDMA and TCP: one axum service, to which a listener of byte streams is what a TCP listener is.

use std::future::pending;
use std::io;
use std::net::SocketAddr;

use axum::body::Bytes;
use axum::routing::post as on_post;
use axum::{Router, serve as serve_http};
use cmid_tokio::proto::datapath::DataPath;
use cmid_tokio::proto::messages::MessagesConfig;
use cmid_tokio::{ByteStream, Channel, Listener, Options};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Connections that wait for the service.
const WAITING: usize = 64;

/// The listener of the service: connections whose accept has ended.
struct Streams<D: DataPath> {
    from: Receiver<(ByteStream<D>, SocketAddr)>,
    address: SocketAddr,
}

impl<D: DataPath + 'static> axum::serve::Listener for Streams<D> {
    type Io = ByteStream<D>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.from.recv().await {
            Some(accepted) => accepted,
            // The error of the listener ends the service.
            None => pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// Accepts each connection in a task of its own, so that a slow peer delays no other one.
async fn accept<D: DataPath + 'static>(
    mut listener: Listener<D>,
    to: Sender<(ByteStream<D>, SocketAddr)>,
) -> io::Error {
    loop {
        let incoming = match listener.accept().await {
            Ok(incoming) => incoming,
            Err(error) => return error,
        };
        let to = to.clone();
        tokio::spawn(async move {
            let accepted = async {
                let peer = incoming.peer_addr()?;
                let channel = Channel::accept(incoming, MessagesConfig::default(), &Options::default()).await?;
                io::Result::Ok((ByteStream::new(channel), peer))
            };
            match accepted.await {
                // Without a service it is closed.
                Ok(accepted) => drop(to.send(accepted).await),
                Err(error) => eprintln!("a connection has failed: {error}"),
            }
        });
    }
}

/// Answers each request on both listeners with its body. Does not end without an error.
///
/// # Errors
/// A listener has failed, such as by the removal of its device.
pub async fn serve<D: DataPath + 'static>(rdma: Listener<D>, tcp: TcpListener) -> io::Result<()> {
    let service = Router::new().route("/", on_post(|body: Bytes| async move { body }));
    let (to, from) = channel(WAITING);
    let streams = Streams { from, address: rdma.local_addr()? };
    tokio::select! {
        error = accept(rdma, to) => Err(error),
        served = serve_http(streams, service.clone()).into_future() => served,
        served = serve_http(tcp, service).into_future() => served,
    }
}
