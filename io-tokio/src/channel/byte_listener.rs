//! A listener of byte streams.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;

use cmid_proto::Observer;
use cmid_proto::datapath::DataPath;
use cmid_proto::handshake::Options;
use cmid_proto::messages::MessagesConfig;
use tokio::task::JoinSet;

use super::{ByteStream, Channel};
use crate::listener::{Incoming, Listener};
use crate::watch::in_runtime;

/// The connections that are accepted at a time. Further requests wait in the kernel, as with the backlog of TCP.
const AT_ONCE: usize = 64;

/// A listener whose connections are [`ByteStream`]s: for a service that runs on TCP, what its `TcpListener` is.
///
/// Each connection is accepted in a task of its own, 64 at a time, so that a slow peer delays no other one. Its peer
/// connects as a [`Channel`]. A stream that waits for [`accept`](ByteListener::accept) shows its peer no sign of life.
/// Dropping the listener rejects the peers whose streams it has not returned.
///
/// With the feature `axum` it is an `axum::serve::Listener`: see README.md.
///
/// ```no_run
/// use cmid_tokio::proto::{datapath::DataPath, messages::MessagesConfig};
/// use cmid_tokio::{ByteListener, Listener, Options};
/// use tokio::io::{copy, split};
///
/// async fn echo(device: impl DataPath + 'static) -> std::io::Result<()> {
///     let listener = Listener::bind(device, "10.0.0.2:7471".parse().expect("an address"))?;
///     let mut listener = ByteListener::new(listener, MessagesConfig::default(), Options::default());
///     loop {
///         let (stream, _peer) = match listener.accept().await {
///             Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
///             accepted => accepted?,
///         };
///         tokio::spawn(async move {
///             let (mut from, mut to) = split(stream);
///             copy(&mut from, &mut to).await
///         });
///     }
/// }
/// ```
#[derive(Debug)]
pub struct ByteListener<D: DataPath, O: Observer = ()> {
    listener: Listener<D, O>,
    accepts: JoinSet<io::Result<(ByteStream<D, O>, SocketAddr)>>,
    config: MessagesConfig,
    options: Options<'static>,
}

/// What an accept waits for.
#[allow(clippy::large_enum_variant, reason = "matched where it is made")]
enum Came<D: DataPath, O: Observer> {
    Request(io::Result<Incoming<D, O>>),
    Accepted(io::Result<(ByteStream<D, O>, SocketAddr)>),
}

impl<D: DataPath, O: Observer> ByteListener<D, O> {
    /// Creates a listener of streams. `config` and `options` are those of each [`Channel::accept`].
    #[must_use]
    pub fn new(listener: Listener<D, O>, config: MessagesConfig, options: Options<'static>) -> Self {
        ByteListener { listener, accepts: JoinSet::new(), config, options }
    }

    /// Returns the address of the listener.
    ///
    /// # Errors
    /// The errno of the device.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl<D: DataPath + 'static, O: Observer + Send + 'static> ByteListener<D, O> {
    /// Waits for the next stream, and returns it with the address of its peer.
    ///
    /// # Errors
    /// `ConnectionAborted` if the connection of one peer has failed, with its cause: as [`Channel::accept`]. The listener
    /// goes on. Otherwise as [`Listener::accept`].
    ///
    /// # Cancel safety
    /// A future that is dropped has taken no stream.
    pub async fn accept(&mut self) -> io::Result<(ByteStream<D, O>, SocketAddr)> {
        loop {
            let came = {
                let mut request = pin!(self.listener.accept());
                poll_fn(|context| {
                    if let Poll::Ready(Some(joined)) = self.accepts.poll_join_next(context) {
                        return Poll::Ready(Came::Accepted(
                            joined.unwrap_or_else(|failed| Err(io::Error::other(failed))),
                        ));
                    }
                    if self.accepts.len() == AT_ONCE {
                        return Poll::Pending;
                    }
                    request.as_mut().poll(context).map(Came::Request)
                })
                .await
            };
            match came {
                Came::Accepted(accepted) => return accepted,
                Came::Request(request) => {
                    let accept = accept(request?, self.config, self.options.clone());
                    in_runtime(|| self.accepts.spawn(accept))?;
                }
            }
        }
    }
}

/// Accepts a request. An error names the peer.
async fn accept<D: DataPath, O: Observer>(
    incoming: Incoming<D, O>,
    config: MessagesConfig,
    options: Options<'static>,
) -> io::Result<(ByteStream<D, O>, SocketAddr)> {
    let aborted = |text| io::Error::new(io::ErrorKind::ConnectionAborted, text);
    let peer = incoming.peer_addr().map_err(|error| aborted(format!("the peer of a request is gone: {error}")))?;
    match Channel::accept(incoming, config, &options).await {
        Ok(channel) => Ok((ByteStream::new(channel), peer)),
        Err(error) => Err(aborted(format!("the connection of {peer} was not accepted: {error}"))),
    }
}

/// As axum's for TCP: without those that have failed, and an error of the listener is tried again each second.
#[cfg(feature = "axum")]
impl<D: DataPath + 'static, O: Observer + Send + 'static> axum::serve::Listener for ByteListener<D, O> {
    type Io = ByteStream<D, O>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match ByteListener::accept(self).await {
                Ok(accepted) => return accepted,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        ByteListener::local_addr(self)
    }
}
