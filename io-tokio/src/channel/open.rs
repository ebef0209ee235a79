//! How a channel begins: its memory and its receives, and the connect or accept.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

use cmid_proto::datapath::{Access, Attaching, Caps, CreateError, DataPath, Pool, Signaled, prelude::*, zeros};
use cmid_proto::handshake::Options;
use cmid_proto::messages::{HEADER, HELLO, Messages, MessagesConfig};
use cmid_proto::{Observer, Time};

use super::{Channel, Work, invalid};
use crate::clock;
use crate::connection::Connection;
use crate::listener::Incoming;

/// The default of [`Channel::set_large_max`].
const LARGE_MAX: usize = 1 << 20;

/// The QP of a channel and its memory.
struct Attached<D: DataPath> {
    qp: D::Qp,
    pd: D::Pd,
    receives: Pool<D::Piece>,
    sends: Pool<D::Piece>,
}

impl<D: DataPath> Channel<D> {
    /// Connects to a listening peer that accepts as a [`Channel`] too.
    ///
    /// The channel registers and pins twice [`window`](MessagesConfig::window) times [`packet`](MessagesConfig::packet)
    /// bytes. Of the private data 16 bytes are its own, so that 40 are left for [`Options::private_data`], 180 of an accept.
    ///
    /// # Errors
    /// As [`Connection::connect`]; `InvalidData` with a [`HelloError`](cmid_proto::messages::HelloError) if the peer has
    /// accepted as something else, or with limits that do not fit, and before anything is done for a `config` that no peer takes. Values of `config` that the device does not have;
    /// `OutOfMemory` for more memory than the process can have.
    ///
    /// # Cancel safety
    /// As [`Connection::connect`].
    pub async fn connect(
        device: D,
        peer: SocketAddr,
        config: MessagesConfig,
        options: &Options<'_>,
    ) -> io::Result<Self> {
        Channel::observed(device, (), peer, config, options).await
    }
}

impl<D: DataPath, O: Observer> Channel<D, O> {
    /// As [`connect`](Channel::connect), with an observer of each step.
    ///
    /// # Errors
    /// As [`connect`](Channel::connect), whose cancel safety holds too.
    pub async fn observed(
        device: D,
        observer: O,
        peer: SocketAddr,
        config: MessagesConfig,
        options: &Options<'_>,
    ) -> io::Result<Self> {
        let hello = with_hello(config, options)?;
        let options = Options { private_data: &hello, ..options.clone() };
        let attach = |device: &mut D, to: Attaching<'_>| attach(device, to, config);
        let (connection, attached) = Connection::observed(device, observer, peer, &options, attach).await?;
        Channel::of(connection, attached, config)
    }

    /// Accepts a connection request of a peer that connects as a [`Channel`]. Memory and private data as for
    /// [`connect`](Channel::connect).
    ///
    /// # Errors
    /// As [`Incoming::accept`], and those of [`connect`](Channel::connect) that are about `config`.
    ///
    /// # Cancel safety
    /// As [`Incoming::accept`].
    pub async fn accept(incoming: Incoming<D, O>, config: MessagesConfig, options: &Options<'_>) -> io::Result<Self> {
        let hello = with_hello(config, options)?;
        let options = Options { private_data: &hello, ..options.clone() };
        let attach = |device: &mut D, to: Attaching<'_>| attach(device, to, config);
        let (connection, attached) = incoming.accept(&options, attach).await?;
        Channel::of(connection, attached, config)
    }

    fn of(mut connection: Connection<D, O>, attached: Attached<D>, config: MessagesConfig) -> io::Result<Self> {
        let messages = Messages::new(config, connection.private_data(), clock::now()).map_err(invalid)?;
        let Attached { qp, pd, receives, sends } = attached;
        let wakers = Arc::default();
        Ok(Channel {
            qp,
            receives,
            sends,
            message_max: messages.message_max().min((config.packet as usize).saturating_sub(HEADER)),
            messages,
            keep_alive: config.keep_alive,
            last_turn: Time::ZERO,
            arrived: Default::default(),
            reading: None,
            offered: None,
            large_max: LARGE_MAX,
            queued: None,
            peer_has_finished: false,
            is_lost: false,
            flushed_by: None,
            is_iwarp: connection.is_iwarp(),
            signaled: Signaled::one_in(u32::from(config.window) / 2),
            is_marked: false,
            failure: None,
            is_told: false,
            waker: Waker::from(Arc::clone(&wakers)),
            wakers,
            connection,
            pd,
        })
    }

    /// Returns what the peer has sent as its [`Options::private_data`], padded with zeros by the transport.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        self.connection.private_data().get(HELLO..).unwrap_or_default()
    }
}

fn with_hello(config: MessagesConfig, options: &Options<'_>) -> io::Result<Vec<u8>> {
    config.check().map_err(invalid)?;
    Ok([&config.hello(), options.private_data].concat())
}

/// Creates the CQ and the QP with its memory, and posts all receives.
fn attach<D: DataPath>(
    device: &mut D,
    to: Attaching<'_>,
    config: MessagesConfig,
) -> Result<(D::Cq, Attached<D>), CreateError> {
    let (window, packet) = (u32::from(config.window), config.packet as usize);
    let (pd, cq) = (device.alloc_pd(to.id())?, device.create_cq(to.id(), 2 * window + 2)?);
    let pool = |access| Ok::<_, CreateError>(pd.pool(zeros(window as usize, packet)?, packet, access)?);
    let (receives, sends) = (pool(Access::LOCAL_WRITE)?, pool(Access::empty())?);
    // Two more: for the read of a large message, and for the last request.
    let caps = Caps { max_send_wr: window + 2, max_recv_wr: window, ..Caps::default() };
    let mut qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
    while let Some(block) = receives.take() {
        qp.post_recv_blocks(Work::Receive as u64, block).map_err(|unposted| unposted.error)?;
    }
    Ok((cq, Attached { qp, pd, receives, sends }))
}
