//! `KernelCm`: the device, with its ids and channels by key.

use core::fmt;
use core::net::SocketAddr;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cmid_proto::{Call, ChannelKey, Device, Ece, Errno, IdKey, Outcome, Pollable, PortSpace, RawEvent, Transport};

use crate::kernel::abi::{QpAttr, offset};
use crate::kernel::calls::Id;
use crate::kernel::channel::{Channel, Scratch};
use crate::kernel::location::{Depths, Limits, Location};
use crate::kernel::node::{Node, OpenError};
use crate::kernel::qp::QueuePair;
use crate::kernel::transport::{Seen, Transports};
use crate::scope::scoped;
use crate::tables::Tables;

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
    pub(crate) tables: Tables<Id, Channel>,
    /// Adopted ids that the kernel still reports under another key, by the kernel's number. That of an id which the core
    /// has forgotten may stay until the number is used again; it finds nothing.
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
// The order matters: an id ends by a command on its channel.
pub struct KernelHandle((Id, Channel));

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
            tables: Tables::new(),
            adopted: HashMap::new(),
            node,
            transports,
            limits,
            answer: Box::new([0; offset::EVENT_LEN]),
            scratch: Box::new(Scratch::new()),
        }
    }

    /// Returns the device of an id; `None` if it has none.
    pub(crate) fn locate(&mut self, key: IdKey) -> Result<Option<&Location>, Errno> {
        let id = self.tables.id_mut(key)?;
        id.locate(&mut self.scratch)
    }

    /// Returns the attributes of a QP for a state.
    pub(crate) fn init_qp_attr(&self, key: IdKey, state: u32) -> Result<QpAttr, Errno> {
        let id = self.tables.id(key)?;
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
        let id = self.tables.id_mut(key)?;
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
        self.tables.id(key).is_ok_and(|id| id.datagrams)
    }

    /// Whether an id has a QP.
    pub(crate) fn has_qp(&self, key: IdKey) -> bool {
        self.tables.id(key).is_ok_and(|id| id.qp.is_some())
    }

    /// Detaches the QP of an id.
    pub(crate) fn destroy_qp(&mut self, key: IdKey) -> Outcome {
        self.tables.id_mut(key)?.detach()
    }

    /// Returns the id that the kernel reports on this channel under this key and this number of its own: an adopted id may
    /// have the key of another one, because cores may have the same number.
    pub(super) fn known(&self, on: ChannelKey, uid: u64, handle: u32) -> Option<IdKey> {
        let is_it = |key: &IdKey| self.tables.id_on(on, *key).is_some_and(|id| id.handle == handle);
        Some(IdKey::from_bits(uid)?).filter(is_it).or_else(|| self.adopted.get(&handle).copied().filter(is_it))
    }

    /// Returns the listener that the kernel reports on this channel under this key: a request does not have its number.
    /// A listener has a channel of its own, which notes an adopted one: a request then costs no search of the adopted
    /// ids.
    pub(super) fn known_listener(&mut self, on: ChannelKey, uid: u64) -> Option<IdKey> {
        let uid = IdKey::from_bits(uid)?;
        let is_it = |key: &IdKey| self.tables.id_on(on, *key).is_some_and(|id| id.uid == Some(uid));
        let noted = self.tables.channel(on).ok()?.listener;
        if let Some(known) = [Some(uid), noted].into_iter().flatten().find(is_it) {
            return Some(known);
        }
        let sought = self.adopted.values().copied().find(is_it)?;
        self.tables.channel_mut(on).ok()?.listener = Some(sought);
        Some(sought)
    }

    fn create_id(&mut self, key: IdKey, on: ChannelKey, space: PortSpace) -> Outcome {
        self.tables.create_id(key, on, |channel| {
            let fd = channel.fd();
            Ok(Id::new(Id::create(key, fd, space)?, Some(key), fd, space))
        })
    }

    fn migrate(&mut self, key: IdKey, to: ChannelKey) -> Outcome {
        self.tables.migrate(key, to, |id, target, from| {
            target.fd().take(id.handle, id.fd)?;
            id.fd = target.fd();
            id.came_from = id.has_listened.then_some(from);
            Ok(())
        })
    }

    fn destroy(&mut self, key: IdKey) -> Outcome {
        let handle = self.tables.id(key)?.handle;
        self.tables.destroy(key)?;
        self.forget_adoption(handle);
        Ok(())
    }

    fn forget_adoption(&mut self, handle: u32) {
        if !self.adopted.is_empty() {
            self.adopted.remove(&handle);
        }
    }

    fn address(&self, key: IdKey, at: usize) -> Result<SocketAddr, Errno> {
        self.tables.id(key)?.address(at)
    }
}

impl Device for KernelCm {
    type Handle = KernelHandle;

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.next_event(on, child)
    }

    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        let KernelCm { tables, scratch, limits, .. } = self;
        match *call {
            Call::OpenChannel { channel } => {
                tables.open_channel(channel, || Channel::open(&self.node).map_err(|error| error.errno()))
            }
            Call::CloseChannel { channel } => tables.close_channel(channel),
            Call::CreateId { id, channel, port_space } => self.create_id(id, channel, port_space),
            Call::Migrate { id, from: _, to } => self.migrate(id, to),
            Call::Destroy { id } => self.destroy(id),
            Call::Bind { id, ref addr } => tables.id_mut(id)?.bind(addr, scratch),
            Call::ResolveAddr { id, ref src, ref dst, timeout_ms } => {
                tables.id_mut(id)?.resolve_addr(src, dst, timeout_ms)
            }
            Call::ResolveRoute { id, timeout_ms } => tables.id_mut(id)?.resolve_route(timeout_ms),
            Call::Listen { id, backlog } => tables.id_mut(id)?.listen(backlog),
            Call::Connect { id, ref param } => tables.id_mut(id)?.connect(scratch, limits, param, private_data),
            Call::Accept { id, ref param } => tables.id_mut(id)?.accept(id, scratch, limits, param, private_data),
            Call::Reject { id, reason } => tables.id_mut(id)?.reject(reason, private_data),
            Call::Establish { id } => tables.id_mut(id)?.establish(scratch),
            Call::Disconnect { id } => tables.id_mut(id)?.disconnect(),
            Call::Notify { id } => tables.id_mut(id)?.notify(),
            Call::SetOption { id, option } => tables.id_mut(id)?.set_option(option),
            Call::SetEce { id, ece } => tables.id_mut(id)?.set_ece(ece),
            Call::Join { id, group, ref addr, send_only } => tables.id_mut(id)?.join(group, addr, send_only),
            Call::Leave { id, group, ref addr } => tables.id_mut(id)?.leave(group, addr),
        }
    }

    fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        if !self.tables.id(id)?.has_address {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        let local = self.address(id, offset::ADDR_SRC)?;
        Ok(scoped(local, || Ok(local)))
    }

    fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        let found = self.tables.id(id)?;
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
        let id = self.tables.id_mut(id).ok()?;
        let seen = self.transports.at(id.locate(&mut self.scratch).ok()??)?;
        match seen {
            Seen::One(transport) => Some(transport),
            Seen::Both => id.transport(&mut self.scratch.qp_attr),
        }
    }

    /// The peer's options for enhanced connection establishment.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EINVAL` once it has a QP.
    fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno> {
        let id = self.tables.id(id)?;
        if id.qp.is_some() { Err(Errno::EINVAL) } else { Ok(id.remote_ece) }
    }

    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<KernelHandle, Errno> {
        let released = self.tables.release(id, channel)?;
        self.forget_adoption(released.0.handle);
        Ok(KernelHandle(released))
    }

    fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: KernelHandle) -> Result<(), Errno> {
        let KernelHandle(mut released) = handle;
        let record = &mut released.0;
        let (number, has_other_key) = (record.handle, record.uid.is_some_and(|uid| uid != id));
        if has_other_key {
            self.adopted.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        }
        // The key is of the other device.
        record.came_from = None;
        self.tables.adopt(id, channel, released)?;
        if has_other_key {
            self.adopted.insert(number, id);
        }
        Ok(())
    }
}

impl Pollable for KernelCm {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.tables.channel(on).ok().map(Channel::as_fd)
    }

    fn sibling(&self) -> Self {
        Self::empty(self.node.clone(), self.transports.clone(), self.limits.clone())
    }
}

impl fmt::Debug for KernelCm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ids, channels) = self.tables.counts();
        f.debug_struct("KernelCm").field("ids", &ids).field("channels", &channels).finish()
    }
}

impl fmt::Debug for KernelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelHandle").field("id", &self.0.0.handle).finish_non_exhaustive()
    }
}
