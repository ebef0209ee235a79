//! What drives the connections of a replica: a mio loop here, the worlds of the simulator in [`crate::world`].

use std::io;
use std::os::fd::AsRawFd as _;

use cmid_mio::proto::datapath::{DataPath, prelude::*};
use cmid_mio::proto::{Drive, Next, Poller};
use cmid_mio::{Channels, Config, Mio};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::protocol::ReplicaId;

/// The first token of the CQs; the tokens of the driver follow.
pub(super) const CQS: usize = 1000;

/// The number of tokens of the driver.
const CHANNELS: usize = 64;

/// A loop that has the connections of a replica.
pub trait Driver<D: DataPath> {
    /// What watches the channels.
    type Poller: Poller<D>;

    /// Returns the requests and events.
    fn drive(&mut self) -> &mut Drive<D, Self::Poller>;

    /// Reads the channels, without waiting.
    fn turn(&mut self) -> Next;

    /// Begins to watch the CQ of the connection with a peer.
    ///
    /// # Errors
    /// That of the poll: the CQ is not watched.
    fn watch(&mut self, peer: ReplicaId, cq: &D::Cq) -> io::Result<()>;

    /// Ends that.
    fn unwatch(&mut self, cq: &D::Cq);
}

/// A mio loop.
#[derive(Debug)]
pub struct OnMio<D: DataPath> {
    registry: Registry,
    pub(super) mio: Mio<D>,
}

impl<D: DataPath> OnMio<D> {
    /// Makes the driver of a replica with this number of members.
    pub(super) fn new(device: D, registry: &Registry, members: usize) -> io::Result<Self> {
        let cqs = CQS + members;
        let config = Config { limits: Default::default(), tokens: cqs..cqs + CHANNELS };
        Ok(OnMio { registry: registry.try_clone()?, mio: Mio::new(device, registry, config)? })
    }
}

impl<D: DataPath> Driver<D> for OnMio<D> {
    type Poller = Channels;

    fn drive(&mut self) -> &mut Drive<D, Channels> {
        self.mio.drive()
    }

    fn turn(&mut self) -> Next {
        self.mio.turn()
    }

    fn watch(&mut self, peer: ReplicaId, cq: &D::Cq) -> io::Result<()> {
        let fd = cq.fd().as_raw_fd();
        self.registry.register(&mut SourceFd(&fd), Token(CQS + peer), Interest::READABLE)
    }

    fn unwatch(&mut self, cq: &D::Cq) {
        let _ = self.registry.deregister(&mut SourceFd(&cq.fd().as_raw_fd()));
    }
}
