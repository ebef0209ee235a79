//! `Rdmacm`: the ids and channels of librdmacm by key.

use core::fmt;
use core::net::SocketAddr;
use std::os::fd::BorrowedFd;

use cmid_proto::key_table::KeyTable;
use cmid_proto::{Call, ChannelKey, Device, Ece, Errno, IdKey, Outcome, Pollable, PortSpace, RawEvent, Transport};

use crate::data::Contexts;
use crate::ffi::{self, ibv_transport_type};
use crate::forgotten::Tables;
use crate::kernel::{Node, OpenError};
use crate::librdmacm::channel::Channel;
use crate::librdmacm::event::PrivateBuffer;
use crate::librdmacm::id::Id;
use crate::librdmacm::{acm, calls};
use crate::scope::scoped;
use crate::{descriptors, errno};

/// Connection management through librdmacm.
///
/// It holds `rdma_cm_id`s and event channels under the core's keys. Dropping it destroys all of them, ids first.
pub(crate) struct Rdmacm {
    // Field order: ids are dropped before the channels that they point at.
    pub(crate) ids: KeyTable<IdKey, Id>,
    pub(crate) channels: KeyTable<ChannelKey, Channel>,
    /// Shared with the siblings of the device.
    pub(crate) contexts: Contexts,
    /// Ids that ended with their device, and their channels. A fetch reports their DEVICE_REMOVAL from here.
    pub(super) lost: Vec<(ChannelKey, IdKey)>,
    pub(super) private: Box<PrivateBuffer>,
}

/// An id and its own channel, outside of any [`Rdmacm`]. Dropping it destroys the id and then the channel.
pub(crate) struct Handle {
    // Field order: as in `Rdmacm`.
    id: Id,
    channel: Channel,
}

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
            ids: KeyTable::default(),
            channels: KeyTable::default(),
            contexts,
            lost: Vec::new(),
            private: Box::new([0; cmid_proto::PrivateData::MAX]),
        }
    }

    /// Returns the numbers of ids and channels, including those that are set aside.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.ids.len(), self.channels.len())
    }

    /// Returns an id that accepts calls.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `ENXIO` for one that ended with its device.
    pub(crate) fn id(&self, key: IdKey) -> Result<&Id, Errno> {
        let id = self.ids.get(key).ok_or(Errno::ENOENT)?;
        if id.has_ended() { Err(Errno::ENXIO) } else { Ok(id) }
    }

    /// Like [`Rdmacm::id`], mutable.
    pub(crate) fn id_mut(&mut self, key: IdKey) -> Result<&mut Id, Errno> {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        if id.has_ended() { Err(Errno::ENXIO) } else { Ok(id) }
    }

    pub(super) fn channel(&self, key: ChannelKey) -> Result<&Channel, Errno> {
        self.channels.get(key).ok_or(Errno::EBADF)
    }

    fn open_channel(&mut self, key: ChannelKey) -> Outcome {
        self.make_room_for_channel(key)?;
        self.channels.insert(key, Channel::open()?).map_err(|_| Errno::EINVAL)
    }

    fn create_id(&mut self, key: IdKey, on: ChannelKey, space: PortSpace) -> Outcome {
        self.make_room_for_id(key)?;
        let channel = self.channels.get_mut(on).ok_or(Errno::EBADF)?;
        self.ids.insert(key, Id::create(key, on, channel, space)?).map_err(|_| Errno::EINVAL)?;
        channel.ids += 1;
        Ok(())
    }

    fn migrate(&mut self, key: IdKey, to: ChannelKey) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        if id.has_ended() {
            return Err(Errno::ENXIO);
        }
        let target = self.channels.get_mut(to).ok_or(Errno::EBADF)?;
        // SAFETY: the id is alive, and both of its channels, the present and the next, are open. The call does not
        // wait, because every event of the id was acked when it was read.
        errno::of_call(|| unsafe { ffi::rdma_migrate_id(id.as_ptr(), target.as_ptr()) })?;
        target.ids += 1;
        let from = core::mem::replace(&mut id.channel, to);
        self.leave(from);
        Ok(())
    }

    fn leave_group(&mut self, key: IdKey, addr: &SocketAddr) -> Outcome {
        let id = self.id_mut(key)?;
        let verbs = id.verbs();
        let outcome = id.leave(*addr);
        if id.has_ended() {
            let on = id.channel;
            self.lost.push((on, key));
            if let Some(verbs) = verbs {
                self.contexts.removed(verbs);
            }
        }
        outcome
    }

    /// Subtracts one from the ids of this channel.
    fn leave(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        channel.ids -= 1;
        if channel.ids == 0 && self.channels.aside().any(|aside| aside == key) {
            self.channels.remove(key);
        }
    }
}

impl Tables for Rdmacm {
    type Id = Id;
    type Channel = Channel;

    fn ids(&self) -> &KeyTable<IdKey, Id> {
        &self.ids
    }

    fn ids_mut(&mut self) -> &mut KeyTable<IdKey, Id> {
        &mut self.ids
    }

    fn channels(&self) -> &KeyTable<ChannelKey, Channel> {
        &self.channels
    }

    fn channels_mut(&mut self) -> &mut KeyTable<ChannelKey, Channel> {
        &mut self.channels
    }

    fn destroy(&mut self, key: IdKey) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        id.destroy()?;
        let on = id.channel;
        self.ids.remove(key);
        self.leave(on);
        Ok(())
    }

    fn close_channel(&mut self, key: ChannelKey) -> Outcome {
        // librdmacm would free the channel, and its ids point at it (rdma_destroy_event_channel(3) forbids it).
        if self.channel(key)?.ids > 0 {
            self.destroy_forgotten_on(key);
        }
        if self.channel(key)?.ids > 0 {
            return Err(Errno::EBUSY);
        }
        self.channels.remove(key);
        Ok(())
    }

    fn is_doomed_on(id: &Id, channel: ChannelKey) -> bool {
        id.doomed && id.channel == channel
    }
}

impl Device for Rdmacm {
    type Handle = Handle;

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.next_event(on, child)
    }

    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        match *call {
            Call::OpenChannel { channel } => self.open_channel(channel),
            Call::CloseChannel { channel } => self.close_channel(channel),
            Call::CreateId { id, channel, port_space } => self.create_id(id, channel, port_space),
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
            Call::Destroy { id } => self.destroy(id),
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
        let (record, owner) = (self.id(id)?, self.channels.get(channel).ok_or(Errno::ENOENT)?);
        // With another id on the channel, two devices would read from one channel.
        if record.channel != channel || owner.ids != 1 {
            return Err(Errno::EINVAL);
        }
        let id = self.ids.remove(id).ok_or(Errno::ENOENT)?;
        let channel = self.channels.remove(channel).ok_or(Errno::ENOENT)?;
        Ok(Handle { id, channel })
    }

    /// Adds a released id and its channel under new keys.
    ///
    /// # Errors
    /// `EINVAL` for keys in use, which is a defect of the driver. The handle is then dropped, and with it the id.
    fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Handle) -> Result<(), Errno> {
        self.make_room_for_id(id)?;
        self.make_room_for_channel(channel)?;
        let Handle { id: mut record, channel: owner } = handle;
        record.set_key(id);
        record.channel = channel;
        self.channels.insert(channel, owner).map_err(|_| Errno::EINVAL)?;
        self.ids.insert(id, record).map_err(|_| Errno::EINVAL)
    }
}

impl Pollable for Rdmacm {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.channels.get(on).map(Channel::fd)
    }

    fn sibling(&self) -> Self {
        Self::empty(self.contexts.clone())
    }
}

impl fmt::Debug for Rdmacm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ids, channels) = self.counts();
        f.debug_struct("Rdmacm").field("ids", &ids).field("channels", &channels).finish()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("qp", &self.id.qp.is_some()).finish_non_exhaustive()
    }
}
