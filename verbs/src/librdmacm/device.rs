//! `Rdmacm`: the ids and channels of librdmacm by key.

use core::fmt;
use core::net::SocketAddr;
use std::os::fd::BorrowedFd;

use cmid_proto::{Call, ChannelKey, Device, Ece, Errno, IdKey, Outcome, Pollable, RawEvent, Transport};

use crate::data::Contexts;
use crate::ffi::{self, ibv_transport_type};
use crate::kernel::{Node, OpenError};
use crate::librdmacm::channel::Channel;
use crate::librdmacm::event::PrivateBuffer;
use crate::librdmacm::id::Id;
use crate::librdmacm::{acm, calls};
use crate::scope::scoped;
use crate::tables::Tables;
use crate::{descriptors, errno};

/// Connection management through librdmacm.
///
/// It holds `rdma_cm_id`s and event channels under the core's keys. Dropping it destroys all of them, ids first.
pub(crate) struct Rdmacm {
    pub(crate) tables: Tables<Id, Channel>,
    /// Shared with the siblings of the device.
    pub(crate) contexts: Contexts,
    /// Ids that ended with their device, and their channels. A fetch reports their DEVICE_REMOVAL from here.
    pub(super) lost: Vec<(ChannelKey, IdKey)>,
    pub(super) private: Box<PrivateBuffer>,
}

/// An id and its own channel, outside of any [`Rdmacm`]. Dropping it destroys the id and then the channel.
// Field order: the id points at the channel.
pub(crate) struct Handle((Id, Channel));

impl Rdmacm {
    /// Creates a device without ids, with the event channel of its [`Contexts`].
    ///
    /// # Errors
    /// [`OpenError::NoLibrary`] without librdmacm. [`OpenError::WaitsForIbacm`]. Those of rdma_create_event_channel(3); `EMFILE` and `ENFILE` without the descriptors
    /// for a list of the devices, which librdmacm reads in its first call.
    pub(crate) fn open() -> Result<Self, OpenError> {
        ffi::load_rdmacm()?;
        descriptors::available(descriptors::LIST).map_err(Node::why)?;
        let channel = Channel::open().map_err(Node::why)?;
        acm::never_asked()?;
        Ok(Self::empty(Contexts::new(channel)))
    }

    fn empty(contexts: Contexts) -> Self {
        Rdmacm {
            tables: Tables::new(),
            contexts,
            lost: Vec::new(),
            private: Box::new([0; cmid_proto::PrivateData::MAX]),
        }
    }

    /// Returns an id that accepts calls.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `ENXIO` for one that ended with its device.
    pub(crate) fn id(&self, key: IdKey) -> Result<&Id, Errno> {
        let id = self.tables.id(key)?;
        if id.has_ended() { Err(Errno::ENXIO) } else { Ok(id) }
    }

    /// Like [`Rdmacm::id`], mutable.
    pub(crate) fn id_mut(&mut self, key: IdKey) -> Result<&mut Id, Errno> {
        let id = self.tables.id_mut(key)?;
        if id.has_ended() { Err(Errno::ENXIO) } else { Ok(id) }
    }

    fn migrate(&mut self, key: IdKey, to: ChannelKey) -> Outcome {
        self.id(key)?;
        self.tables.migrate(key, to, |id, target, _| {
            // SAFETY: the id is alive, and both of its channels, the present and the next, are open. The call does not
            // wait, because every event of the id was acked when it was read.
            errno::of_call(|| unsafe { ffi::rdma_migrate_id(id.as_ptr(), target.as_ptr()) })
        })
    }

    fn leave_group(&mut self, key: IdKey, addr: &SocketAddr) -> Outcome {
        let id = self.id_mut(key)?;
        let verbs = id.verbs();
        let outcome = id.leave(*addr);
        if id.has_ended() {
            self.lost.extend(self.tables.ids.get(key).map(|found| (found.channel, key)));
            if let Some(verbs) = verbs {
                self.contexts.removed(verbs);
            }
        }
        outcome
    }
}

impl Device for Rdmacm {
    type Handle = Handle;

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.next_event(on, child)
    }

    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        match *call {
            Call::OpenChannel { channel } => self.tables.open_channel(channel, Channel::open),
            Call::CloseChannel { channel } => self.tables.close_channel(channel),
            Call::CreateId { id, channel, port_space } => {
                self.tables.create_id(id, channel, |on| Id::create(id, on, port_space))
            }
            Call::Bind { id, ref addr } => calls::bind(self.id(id)?, addr),
            Call::ResolveAddr { id, ref src, ref dst, timeout_ms } => {
                calls::resolve_addr(self.id(id)?, src, dst, timeout_ms)
            }
            Call::ResolveRoute { id, timeout_ms } => calls::resolve_route(self.id(id)?, timeout_ms),
            Call::Listen { id, backlog } => calls::listen(self.id(id)?, backlog),
            Call::Connect { id, ref param } => calls::connect(self.id(id)?, param, private_data),
            Call::Accept { id, ref param } => calls::accept(self.id(id)?, param, private_data),
            Call::Reject { id, reason } => calls::reject(self.id(id)?, reason, private_data),
            Call::Establish { id } => calls::establish(self.id(id)?),
            Call::Disconnect { id } => calls::disconnect(self.id(id)?),
            Call::Notify { id } => calls::notify(self.id(id)?),
            Call::Join { id, group, ref addr, send_only } => self.id_mut(id)?.join(group, addr, send_only),
            // librdmacm finds the membership by its address.
            Call::Leave { id, group: _, ref addr } => self.leave_group(id, addr),
            Call::SetOption { id, option } => calls::set_option(self.id(id)?, option),
            Call::SetEce { id, ece } => calls::set_ece(self.id(id)?, ece),
            // librdmacm knows the present channel.
            Call::Migrate { id, from: _, to } => self.migrate(id, to),
            Call::Destroy { id } => self.tables.destroy(id),
        }
    }

    fn transport(&mut self, id: IdKey) -> Option<Transport> {
        let verbs = self.id(id).ok()?.verbs()?;
        // SAFETY: the id has the context, which is open, and the device of a context and its transport do not change.
        let transport = unsafe { (*(*verbs.as_ptr()).device).transport_type };
        Some(if transport == ibv_transport_type::IBV_TRANSPORT_IWARP {
            Transport::Iwarp
        } else {
            Transport::InfiniBand
        })
    }

    fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        let local = self.id(id)?.local_addr().ok_or(Errno::EADDRNOTAVAIL)?;
        Ok(scoped(local, || Ok(local)))
    }

    fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        let id = self.id(id)?;
        // For a bound id, which has no peer, the kernel returns the wildcard address of its family.
        let none = |peer: &SocketAddr| peer.ip().is_unspecified() && peer.port() == 0;
        let peer = id.peer_addr().filter(|peer| !none(peer)).ok_or(Errno::EADDRNOTAVAIL)?;
        Ok(scoped(peer, || id.local_addr().ok_or(Errno::EADDRNOTAVAIL)))
    }

    /// The peer's options for enhanced connection establishment, from its request or answer (`rdma_get_remote_ece`).
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EINVAL` once it has a QP.
    fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno> {
        calls::remote_ece(self.id(id)?)
    }

    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Handle, Errno> {
        self.id(id)?;
        self.tables.release(id, channel).map(Handle)
    }

    fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Handle) -> Result<(), Errno> {
        let Handle(mut released) = handle;
        released.0.set_key(id);
        self.tables.adopt(id, channel, released)
    }
}

impl Pollable for Rdmacm {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.tables.channel(on).ok().map(Channel::fd)
    }

    fn sibling(&self) -> Self {
        Self::empty(self.contexts.clone())
    }
}

impl fmt::Debug for Rdmacm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ids, channels) = self.tables.counts();
        f.debug_struct("Rdmacm").field("ids", &ids).field("channels", &channels).finish()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("qp", &self.0.0.qp.is_some()).finish_non_exhaustive()
    }
}
