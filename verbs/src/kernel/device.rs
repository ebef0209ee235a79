//! `KernelCm`: the device, with its ids and channels by key.

use core::fmt;
use core::net::SocketAddr;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cmid_proto::key_table::KeyTable;
use cmid_proto::{Call, ChannelKey, Device, Ece, Errno, IdKey, Outcome, Pollable, PortSpace, RawEvent, Transport};

use crate::forgotten::Tables;
use crate::kernel::abi::QpAttr;
use crate::kernel::abi::offset;
use crate::kernel::calls::Id;
use crate::kernel::channel::{Channel, Scratch};
use crate::kernel::limits::Limits;
use crate::kernel::location::{Depths, Location};
use crate::kernel::node::{Node, OpenError};
use crate::kernel::queue_pair::QueuePair;
use crate::kernel::transport::Transports;
use crate::scope::scoped;

/// Connection management on the kernel's own interface, for ids without a [`Qp`](crate::Qp) of this crate.
///
/// It uses neither librdmacm nor ibacm, and opens no RDMA device. One thread at a time uses it. Dropping it destroys its ids
/// and closes its channels. [`Verbs`](crate::Verbs) with [`Backend::Kernel`](crate::Backend)
/// is this device with QPs.
///
/// The kernel compares the credentials of the thread that makes a command with those of the thread that opened the
/// channel, and refuses with `EACCES` if they are not the same (`ib_safe_file_access`). They differ after setuid(2), in
/// a forked child, and between threads after a setuid(2), which gives each thread credentials of its own.
pub struct KernelCm {
    // The order matters: an id ends by a command on its channel.
    pub(super) ids: KeyTable<IdKey, Id>,
    pub(super) channels: KeyTable<ChannelKey, Channel>,
    /// Adopted ids that the kernel still reports under another key, by the kernel's number.
    pub(super) adopted: HashMap<u32, IdKey>,
    node: Node,
    pub(super) transports: Transports,
    pub(super) limits: Limits,
    pub(super) answer: Box<[u8; offset::EVENT_LEN]>,
    pub(super) scratch: Box<Scratch>,
}

/// An id and its own channel, outside of any [`KernelCm`]; see [`Device::release`].
///
/// Dropping it destroys the id and closes the channel.
pub struct KernelHandle {
    // The order matters, as in `KernelCm`.
    id: Id,
    channel: Channel,
}

impl KernelCm {
    /// Creates a device without ids. `depth` is the number of RDMA reads and atomics that the RDMA device serves and
    /// starts at once (`max_qp_rd_atom` of ibv_query_device(3)).
    /// [`ConnParam::DEVICE_MAX`](cmid_proto::ConnParam::DEVICE_MAX) selects it.
    ///
    /// # Errors
    /// Names the part of the kernel's interface that is missing.
    pub fn open(depth: u8) -> Result<Self, OpenError> {
        Self::open_with(|| Ok(Limits::Given(Depths { responder_resources: depth, initiator_depth: depth })))
    }

    pub(super) fn open_with(limits: impl FnOnce() -> Result<Limits, Errno>) -> Result<Self, OpenError> {
        let node = Node::find()?;
        Channel::open(&node)?.probe()?;
        let transports = Transports::read().map_err(OpenError::Failed)?;
        Ok(Self::empty(node, transports, limits().map_err(OpenError::Failed)?))
    }

    fn empty(node: Node, transports: Transports, limits: Limits) -> Self {
        KernelCm {
            ids: KeyTable::default(),
            channels: KeyTable::default(),
            adopted: HashMap::new(),
            node,
            transports,
            limits,
            answer: Box::new([0; offset::EVENT_LEN]),
            scratch: Box::new(Scratch::new()),
        }
    }

    /// Returns the numbers of ids and channels, including those that are set aside.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.ids.len(), self.channels.len())
    }

    /// Returns the device of an id; `None` if it has none.
    pub(crate) fn locate(&mut self, key: IdKey) -> Result<Option<&Location>, Errno> {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        id.locate(&mut self.scratch)
    }

    /// Returns the attributes of a QP for a state.
    pub(crate) fn init_qp_attr(&self, key: IdKey, state: u32) -> Result<QpAttr, Errno> {
        let id = self.ids.get(key).ok_or(Errno::ENOENT)?;
        let mut attr = QpAttr::default();
        id.qp_attr(state, &mut attr)?;
        Ok(attr)
    }

    /// Creates a QP on an id. `create` gets the device of the id, and whether the QP is for datagrams.
    ///
    /// # Errors
    /// `ENODEV` while the id has no device, `EINVAL` if it has a QP; otherwise the errno of `create`, the kernel or the
    /// provider.
    pub(super) fn attach_qp<Q: QueuePair + 'static>(
        &mut self,
        key: IdKey,
        create: impl FnOnce(&Location, bool) -> Result<Arc<Q>, Errno>,
    ) -> Result<Arc<Q>, Errno> {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        let (datagrams, has_qp) = (id.datagrams, id.qp.is_some());
        let location = id.locate(&mut self.scratch)?.ok_or(Errno::ENODEV)?;
        if has_qp {
            return Err(Errno::EINVAL);
        }
        let qp = create(location, datagrams)?;
        let of_id: Arc<Q> = Arc::clone(&qp);
        id.attach(&mut self.scratch.qp_attr, of_id)?;
        Ok(qp)
    }

    /// Whether an id has a service of datagrams.
    pub(crate) fn is_datagram(&self, key: IdKey) -> bool {
        self.ids.get(key).is_some_and(|id| id.datagrams)
    }

    /// Whether an id has a QP.
    pub(crate) fn has_qp(&self, key: IdKey) -> bool {
        self.ids.get(key).is_some_and(|id| id.qp.is_some())
    }

    /// Detaches the QP of an id.
    pub(crate) fn destroy_qp(&mut self, key: IdKey) -> Outcome {
        self.ids.get_mut(key).ok_or(Errno::ENOENT)?.detach()
    }

    /// Returns the id that the kernel reports on this channel under this key and this number of its own: an adopted id may
    /// have the key of another one, because cores may have the same number.
    pub(super) fn known(&self, on: ChannelKey, uid: u64, handle: u32) -> Option<IdKey> {
        let is_it = |key: &IdKey| self.ids.get_filed(*key).is_some_and(|id| id.handle == handle && id.channel == on);
        Some(IdKey::from_bits(uid)?).filter(is_it).or_else(|| self.adopted.get(&handle).copied().filter(is_it))
    }

    /// Returns the listener that the kernel reports on this channel under this key: a request does not have its number. A
    /// listener has a channel of its own.
    pub(super) fn known_listener(&self, on: ChannelKey, uid: u64) -> Option<IdKey> {
        let uid = IdKey::from_bits(uid)?;
        let is_it = |key: &IdKey| self.ids.get_filed(*key).is_some_and(|id| id.uid == Some(uid) && id.channel == on);
        Some(uid).filter(is_it).or_else(|| self.adopted.values().copied().find(is_it))
    }

    fn open_channel(&mut self, key: ChannelKey) -> Outcome {
        self.make_room_for_channel(key)?;
        let channel = Channel::open(&self.node).map_err(|error| error.errno())?;
        self.channels.insert(key, channel).map_err(|_| Errno::EINVAL)
    }

    fn create_id(&mut self, key: IdKey, on: ChannelKey, space: PortSpace) -> Outcome {
        self.make_room_for_id(key)?;
        let channel = self.channels.get_mut(on).ok_or(Errno::EBADF)?;
        let fd = channel.fd();
        let handle = Id::create(key, fd, space)?;
        channel.ids += 1;
        self.ids.insert(key, Id::new(handle, Some(key), (on, fd), space)).map_err(|_| Errno::EINVAL)
    }

    fn forget_adoption(&mut self, handle: u32) {
        if !self.adopted.is_empty() {
            self.adopted.remove(&handle);
        }
    }

    fn migrate(&mut self, key: IdKey, to: ChannelKey) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        let from = id.channel;
        let target = self.channels.get_mut(to).ok_or(Errno::EBADF)?;
        target.fd().take(id.handle, id.fd)?;
        target.ids += 1;
        (id.channel, id.fd) = (to, target.fd());
        id.came_from = id.has_listened.then_some(from);
        self.leave_channel(from);
        Ok(())
    }

    /// Subtracts one from the ids of this channel. A channel that is set aside is closed after its last id.
    fn leave_channel(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        channel.ids -= 1;
        if channel.ids == 0 && self.channels.aside().any(|aside| aside == key) {
            self.channels.remove(key);
        }
    }

    fn address(&self, key: IdKey, at: usize) -> Result<SocketAddr, Errno> {
        let id = self.ids.get(key).ok_or(Errno::ENOENT)?;
        id.address(at)
    }
}

impl Tables for KernelCm {
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
        let (handle, on) = (id.handle, id.channel);
        // The id owns nothing any more. Its drop would destroy it again.
        core::mem::forget(self.ids.remove(key));
        self.forget_adoption(handle);
        self.leave_channel(on);
        Ok(())
    }

    /// # Errors
    /// `EBUSY` while ids are on it: the kernel would destroy them.
    fn close_channel(&mut self, key: ChannelKey) -> Outcome {
        if self.channels.get(key).ok_or(Errno::EBADF)?.ids > 0 {
            self.destroy_forgotten_on(key);
        }
        if self.channels.get(key).ok_or(Errno::EBADF)?.ids > 0 {
            return Err(Errno::EBUSY);
        }
        self.channels.remove(key);
        Ok(())
    }

    fn is_doomed_on(id: &Id, channel: ChannelKey) -> bool {
        id.doomed && id.channel == channel
    }
}

impl Device for KernelCm {
    type Handle = KernelHandle;

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.next_event(on, child)
    }

    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        let KernelCm { ids, scratch, limits, .. } = self;
        match *call {
            Call::OpenChannel { channel } => self.open_channel(channel),
            Call::CloseChannel { channel } => self.close_channel(channel),
            Call::CreateId { id, channel, port_space } => self.create_id(id, channel, port_space),
            Call::Migrate { id, from: _, to } => self.migrate(id, to),
            Call::Destroy { id } => self.destroy(id),
            Call::Bind { id, ref addr } => find(ids, id)?.bind(addr, scratch),
            Call::ResolveAddr { id, ref src, ref dst, timeout_ms } => find(ids, id)?.resolve_addr(src, dst, timeout_ms),
            Call::ResolveRoute { id, timeout_ms } => find(ids, id)?.resolve_route(timeout_ms),
            Call::Listen { id, backlog } => find(ids, id)?.listen(backlog),
            Call::Connect { id, ref param } => find(ids, id)?.connect(scratch, limits, param, private_data),
            Call::Accept { id, ref param } => find(ids, id)?.accept(id, scratch, limits, param, private_data),
            Call::Reject { id, reason } => find(ids, id)?.reject(reason, private_data),
            Call::Establish { id } => find(ids, id)?.establish(scratch),
            Call::Disconnect { id } => find(ids, id)?.disconnect(),
            Call::Notify { id } => find(ids, id)?.notify(),
            Call::SetOption { id, option } => find(ids, id)?.set_option(option),
            Call::SetEce { id, ece } => find(ids, id)?.set_ece(ece),
            Call::Join { id, group, ref addr, send_only } => find(ids, id)?.join(group, addr, send_only),
            Call::Leave { id, group, ref addr } => find(ids, id)?.leave(group, addr),
        }
    }

    fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        if !self.ids.get(id).ok_or(Errno::ENOENT)?.has_address {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        let local = self.address(id, offset::ADDR_SRC)?;
        Ok(scoped(local, || Ok(local)))
    }

    fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        let found = self.ids.get(id).ok_or(Errno::ENOENT)?;
        let peer = match found {
            Id { sought: Some(sought), .. } => *sought,
            Id { has_peer: true, .. } => self.address(id, offset::ADDR_DST)?,
            Id { .. } => return Err(Errno(libc::EADDRNOTAVAIL)),
        };
        // As with librdmacm, an address that a lookup seeks is scoped by the address of a bind only.
        let local = || if found.has_address { self.address(id, offset::ADDR_SRC) } else { Err(Errno::EADDRNOTAVAIL) };
        Ok(scoped(peer, local))
    }

    fn transport(&mut self, id: IdKey) -> Option<Transport> {
        let id = self.ids.get_mut(id)?;
        let location = id.locate(&mut self.scratch).ok()??;
        self.transports.at(location)
    }

    /// The peer's options for enhanced connection establishment.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EINVAL` once it has a QP.
    fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno> {
        let id = self.ids.get(id).ok_or(Errno::ENOENT)?;
        if id.qp.is_some() { Err(Errno::EINVAL) } else { Ok(id.remote_ece) }
    }

    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<KernelHandle, Errno> {
        let owner = self.channels.get(channel).ok_or(Errno::ENOENT)?;
        if self.ids.get(id).ok_or(Errno::ENOENT)?.channel != channel || owner.ids != 1 {
            return Err(Errno::EINVAL);
        }
        let id = self.ids.remove(id).ok_or(Errno::ENOENT)?;
        self.forget_adoption(id.handle);
        let channel = self.channels.remove(channel).ok_or(Errno::ENOENT)?;
        Ok(KernelHandle { id, channel })
    }

    fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: KernelHandle) -> Result<(), Errno> {
        // Until both have room, the handle is whole: its id ends before its channel.
        self.make_room_for_id(id)?;
        self.make_room_for_channel(channel)?;
        let has_other_key = handle.id.uid.is_some_and(|uid| uid != id);
        if has_other_key {
            self.adopted.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        }
        let KernelHandle { id: mut record, channel: owner } = handle;
        record.channel = channel;
        // The key is of the other device.
        record.came_from = None;
        if has_other_key {
            self.adopted.insert(record.handle, id);
        }
        self.channels.insert(channel, owner).map_err(|_| Errno::EINVAL)?;
        self.ids.insert(id, record).map_err(|_| Errno::EINVAL)
    }
}

fn find(ids: &mut KeyTable<IdKey, Id>, key: IdKey) -> Result<&mut Id, Errno> {
    ids.get_mut(key).ok_or(Errno::ENOENT)
}

impl Pollable for KernelCm {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.channels.get(on).map(Channel::as_fd)
    }

    fn sibling(&self) -> Self {
        Self::empty(self.node.clone(), self.transports.clone(), self.limits.clone())
    }
}

impl fmt::Debug for KernelCm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelCm").field("ids", &self.ids.len()).field("channels", &self.channels.len()).finish()
    }
}

impl fmt::Debug for KernelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelHandle").field("id", &self.id.handle).finish_non_exhaustive()
    }
}
