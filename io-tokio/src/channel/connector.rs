//! Connections for clients of HTTP.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use cmid_proto::Observer;
use cmid_proto::datapath::DataPath;
use cmid_proto::handshake::Options;
use cmid_proto::messages::MessagesConfig;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::lookup_host;
use tower_service::Service;

use super::{ByteStream, Channel};

/// What a client of HTTP connects with, instead of hyper-util's `HttpConnector`: the client of hyper-util, and tonic's
/// `Endpoint::connect_with_connector`. Its clones are one.
///
/// Each connection has a [sibling](cmid_proto::Pollable::sibling) of the device. A host that is a name is looked up, and its
/// addresses are tried one after the other. Without a port it is 80. The only scheme is `http`.
///
#[cfg_attr(feature = "sim", doc = "```")]
#[cfg_attr(not(feature = "sim"), doc = "```ignore")]
/// use cmid_tokio::{Connector, Options, proto::messages::MessagesConfig, sim};
/// use http_body_util::Empty;
/// use hyper_util::{client::legacy::Client, rt::TokioExecutor};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let fabric = sim::Fabric::new(sim::Config { clock: sim::Clock::Real, ..Default::default() });
/// # let host = fabric.host(&["10.0.0.1".parse()?]);
/// let connector = Connector::new(host.device(), MessagesConfig::default(), Options::default());
/// let client = Client::builder(TokioExecutor::new()).build::<_, Empty<&[u8]>>(connector);
/// let refused = client.get("http://10.0.0.1:7471/".parse()?).await;
/// assert!(refused.is_err_and(|error| error.is_connect()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Connector<D> {
    device: Arc<Mutex<D>>,
    config: MessagesConfig,
    options: Options<'static>,
}

impl<D> Connector<D> {
    /// Creates a connector. `config` and `options` are those of each [`Channel::connect`].
    #[must_use]
    pub fn new(device: D, config: MessagesConfig, options: Options<'static>) -> Self {
        Connector { device: Arc::new(Mutex::new(device)), config, options }
    }
}

impl<D> Clone for Connector<D> {
    fn clone(&self) -> Self {
        Connector { device: Arc::clone(&self.device), config: self.config, options: self.options.clone() }
    }
}

/// Without the device, which a call may use.
impl<D> fmt::Debug for Connector<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("config", &self.config).finish_non_exhaustive()
    }
}

/// `InvalidInput` for a URI without a host or of another scheme; as [`lookup_host`]; as [`Channel::connect`] to the last
/// address.
impl<D: DataPath + 'static> Service<Uri> for Connector<D> {
    type Response = TokioIo<ByteStream<D>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Connector { device, config, options } = self.clone();
        Box::pin(async move {
            let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
            for peer in lookup_host(host_and_port(&uri)?).await? {
                let device = device.lock().unwrap_or_else(PoisonError::into_inner).sibling();
                match Channel::connect(device, peer, config, &options).await {
                    Ok(channel) => return Ok(TokioIo::new(ByteStream::new(channel))),
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        })
    }
}

fn host_and_port(uri: &Uri) -> io::Result<(&str, u16)> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    if uri.scheme_str().is_some_and(|scheme| scheme != "http") {
        return Err(invalid(format!("{uri} is not of the scheme http")));
    }
    let host = uri.host().ok_or_else(|| invalid(format!("{uri} has no host")))?;
    Ok((host.trim_start_matches('[').trim_end_matches(']'), uri.port_u16().unwrap_or(80)))
}

impl<D: DataPath, O: Observer> Connection for ByteStream<D, O> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
