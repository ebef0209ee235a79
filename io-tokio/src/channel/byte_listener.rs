//! A listener of byte streams.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use cmid_proto::Observer;
use cmid_proto::datapath::DataPath;
use cmid_proto::handshake::Options;
use cmid_proto::messages::MessagesConfig;
use futures_core::Stream;
use tokio::task::JoinSet;

use super::{ByteStream, Channel};
use crate::listener::{Incoming, Listener};
use crate::watch::in_runtime;

/// The connections that are accepted at a time. Further requests wait in the kernel, as with the backlog of TCP.
const AT_ONCE: usize = 64;

/// A listener whose connections are [`ByteStream`]s: for a service that runs on TCP, what its `TcpListener` is.
///
/// Each connection is accepted in a task of its own, 64 at a time: so many slow peers delay others, until the timeout of their
/// accepts, and fewer do not. Its peer connects as a [`Channel`]. A stream that waits for [`accept`](ByteListener::accept)
/// shows its peer no sign of life. Dropping the listener rejects the peers whose streams it has not returned.
///
/// With the feature `axum` it is an `axum::serve::Listener`, with `tonic` what its server serves: see README.md.
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
///             // One peer has failed, or descriptors are too few for it.
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
    /// Whether the stream ends next.
    has_failed: bool,
    /// Who waits for its [end](ByteListener::end).
    #[cfg(feature = "axum")]
    end: Option<tokio::sync::oneshot::Sender<io::Error>>,
}

/// Nothing in it is pinned.
impl<D: DataPath, O: Observer> Unpin for ByteListener<D, O> {}

impl<D: DataPath, O: Observer> ByteListener<D, O> {
    /// Creates a listener of streams. `config` and `options` are those of each [`Channel::accept`].
    #[must_use]
    pub fn new(listener: Listener<D, O>, config: MessagesConfig, options: Options<'static>) -> Self {
        ByteListener {
            listener,
            accepts: JoinSet::new(),
            config,
            options,
            has_failed: false,
            #[cfg(feature = "axum")]
            end: None,
        }
    }

    /// Returns a future of the error that ends it, such as that of a removed device: `axum::serve` does not end by itself, so
    /// pass it to `with_graceful_shutdown`, then open the device and the listener again. Without an error it waits for ever. A
    /// later future replaces it.
    #[cfg(feature = "axum")]
    pub fn end(&mut self) -> impl Future<Output = io::Error> + Send + use<D, O> {
        let (end, ended) = tokio::sync::oneshot::channel();
        self.end = Some(end);
        async move {
            match ended.await {
                Ok(error) => error,
                // It was dropped, or there is a later future.
                Err(_) => std::future::pending().await,
            }
        }
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
    /// `ConnectionAborted` is about one peer, and the listener goes on: as [`Channel::accept`] or [`Listener::accept`] has
    /// failed. Any other error ends a loop of accepts, as those of [`Listener::accept`].
    ///
    /// # Cancel safety
    /// A future that is dropped has taken no stream.
    pub async fn accept(&mut self) -> io::Result<(ByteStream<D, O>, SocketAddr)> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(ByteStream<D, O>, SocketAddr)>> {
        loop {
            if let Poll::Ready(Some(joined)) = self.accepts.poll_join_next(context) {
                return Poll::Ready(joined.unwrap_or_else(|failed| Err(aborted(failed.to_string()))));
            }
            if self.accepts.len() == AT_ONCE {
                return Poll::Pending;
            }
            let request = ready!(self.listener.poll_accept(context))?;
            let accept = accept(request, self.config, self.options.clone());
            in_runtime(|| self.accepts.spawn(accept))?;
        }
    }
}

fn aborted(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, text)
}

/// Accepts a request. An error names the peer.
async fn accept<D: DataPath, O: Observer>(
    incoming: Incoming<D, O>,
    config: MessagesConfig,
    options: Options<'static>,
) -> io::Result<(ByteStream<D, O>, SocketAddr)> {
    let peer = incoming.peer_addr().map_err(|error| aborted(format!("the peer of a request is gone: {error}")))?;
    match Channel::accept(incoming, config, &options).await {
        Ok(channel) => Ok((ByteStream::new(channel), peer)),
        Err(error) => Err(aborted(format!("the connection of {peer} was not accepted: {error}"))),
    }
}

/// Its streams, and the errors of [`accept`](ByteListener::accept). It ends after an error that is not about one peer.
impl<D: DataPath + 'static, O: Observer + Send + 'static> Stream for ByteListener<D, O> {
    type Item = io::Result<ByteStream<D, O>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        let accepted = ready!(self.poll_accept(context));
        self.has_failed = accepted.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::ConnectionAborted);
        Poll::Ready(Some(accepted.map(|(stream, _peer)| stream)))
    }
}

/// As axum's for TCP: without those that have failed. After an error of the listener, which [`end`](ByteListener::end) tells,
/// it tries again each second.
#[cfg(feature = "axum")]
impl<D: DataPath + 'static, O: Observer + Send + 'static> axum::serve::Listener for ByteListener<D, O> {
    type Io = ByteStream<D, O>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match ByteListener::accept(self).await {
                Ok(accepted) => return accepted,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Nobody may wait for it.
                    let _ = self.end.take().map(|end| end.send(error));
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        ByteListener::local_addr(self)
    }
}
