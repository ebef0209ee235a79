//! `KernelCm`: the device, with its ids and channels by key.

use core::fmt;
use core::net::SocketAddr;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use cmid_proto::{
    Call, ChannelKey, CmEvent, Device, Ece, Errno, GroupKey, IdKey, KeyTable, Outcome, Pollable, PortSpace, RawEvent,
    ReceivedParam,
};

use crate::event::{Contents, contents};
use crate::kernel::abi::{self, offset};
use crate::kernel::answer::{self, Answer};
use crate::kernel::calls::Id;
use crate::kernel::channel::Channel;
use crate::kernel::node::OpenError;

/// The maximum number of events per fetch that are of no id of this device.
const STRAY_MAX: usize = 16;

/// Connection management on the kernel's own interface, for ids without a [`Qp`](crate::Qp) of this crate.
///
/// It uses neither librdmacm nor ibacm, and opens no RDMA device. One thread at a time uses it. Dropping it closes its
/// channels, and the kernel then destroys their ids.
///
/// It is not complete: QPs, the queries for paths and GIDs, and `RDMA_OPTION_IB` are missing, datagrams have no Q_Key, and
/// parameters are not checked against the limits of the device.
pub struct KernelCm {
    ids: KeyTable<IdKey, Id>,
    channels: KeyTable<ChannelKey, Channel>,
    groups: Vec<Membership>,
    /// Adopted ids, by the key that the kernel still reports them under.
    adopted: HashMap<IdKey, IdKey>,
    /// The depth to send for [`ConnParam::DEVICE_MAX`](cmid_proto::ConnParam::DEVICE_MAX).
    depth: u8,
    answer: Box<[u8; offset::EVENT_LEN]>,
}

struct Membership {
    key: GroupKey,
    id: IdKey,
    handle: u32,
}

/// An id with the channel that only it uses, outside of any [`KernelCm`]; see [`Device::release`].
pub struct KernelHandle {
    id: Id,
    channel: Channel,
}

impl KernelCm {
    /// A device without ids. `depth` is the number of RDMA reads and atomics that
    /// [`ConnParam::DEVICE_MAX`](cmid_proto::ConnParam::DEVICE_MAX) stands for (`max_qp_rd_atom` of ibv_query_device(3)).
    ///
    /// # Errors
    /// Names the part of the kernel's interface that is missing.
    pub fn open(depth: u8) -> Result<Self, OpenError> {
        Channel::open()?.probe()?;
        Ok(Self::empty(depth))
    }

    fn empty(depth: u8) -> Self {
        KernelCm {
            ids: KeyTable::default(),
            channels: KeyTable::default(),
            groups: Vec::new(),
            adopted: HashMap::new(),
            depth,
            answer: Box::new([0; offset::EVENT_LEN]),
        }
    }

    fn find(&self, key: IdKey) -> Result<(&Id, &Channel), Errno> {
        let id = self.ids.get(key).ok_or(Errno::ENOENT)?;
        Ok((id, self.channels.get(id.channel).ok_or(Errno::EBADF)?))
    }

    /// The id that the kernel reports with this number.
    fn known(&self, uid: u64) -> Option<IdKey> {
        let uid = IdKey::from_bits(uid)?;
        let key = self.adopted.get(&uid).copied().unwrap_or(uid);
        self.ids.get_filed(key).is_some_and(|id| id.uid == uid).then_some(key)
    }

    fn open_channel(&mut self, key: ChannelKey) -> Outcome {
        self.channels.reserve(key)?;
        let channel = Channel::open().map_err(|error| error.errno())?;
        self.channels.insert(key, channel).map_err(|_| Errno::EINVAL)
    }

    fn close_channel(&mut self, key: ChannelKey) -> Outcome {
        if self.channels.get(key).ok_or(Errno::EBADF)?.ids > 0 {
            return Err(Errno::EBUSY);
        }
        self.channels.remove(key);
        Ok(())
    }

    fn create_id(&mut self, key: IdKey, on: ChannelKey, space: PortSpace) -> Outcome {
        self.ids.reserve(key)?;
        let channel = self.channels.get_mut(on).ok_or(Errno::EBADF)?;
        let id = Id::create(key, on, channel, space)?;
        channel.ids += 1;
        self.ids.insert(key, id).map_err(|_| Errno::EINVAL)
    }

    fn destroy(&mut self, key: IdKey) -> Outcome {
        let (id, channel) = self.find(key)?;
        id.destroy(channel)?;
        self.groups.retain(|group| group.id != key);
        let Some(id) = self.ids.remove(key) else { return Ok(()) };
        self.adopted.remove(&id.uid);
        if let Some(channel) = self.channels.get_mut(id.channel) {
            channel.ids -= 1;
        }
        Ok(())
    }

    fn migrate(&mut self, key: IdKey, to: ChannelKey) -> Outcome {
        let (id, from) = self.find(key)?;
        let old = id.channel;
        self.channels.get(to).ok_or(Errno::EBADF)?.take(id.handle, from)?;
        for (channel, joins) in [(old, false), (to, true)] {
            let Some(channel) = self.channels.get_mut(channel) else { continue };
            channel.ids = if joins { channel.ids + 1 } else { channel.ids - 1 };
        }
        self.ids.get_mut(key).ok_or(Errno::ENOENT)?.channel = to;
        Ok(())
    }

    fn join(&mut self, key: IdKey, group: GroupKey, addr: &SocketAddr, send_only: bool) -> Outcome {
        self.groups.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let (id, channel) = self.find(key)?;
        let handle = id.join(channel, group, addr, send_only)?;
        self.groups.push(Membership { key: group, id: key, handle });
        Ok(())
    }

    fn leave(&mut self, key: IdKey, group: GroupKey) -> Outcome {
        let (_, channel) = self.find(key)?;
        let at = self.groups.iter().position(|known| known.key == group && known.id == key);
        let at = at.ok_or(Errno(libc::EADDRNOTAVAIL))?;
        let id = self.groups[at].handle;
        let left = channel.number(abi::LeaveMcast { destroy: abi::DestroyId { response: 0, id, reserved: 0 } });
        self.groups.swap_remove(at);
        left.map(drop)
    }

    /// Stores the id of the request that was read last. Returns its listener.
    fn file_child(&mut self, on: ChannelKey, child: IdKey) -> Option<IdKey> {
        let event = Answer(&self.answer);
        let listener = self.known(event.uid());
        let datagrams = listener.and_then(|key| self.ids.get(key)).is_some_and(|id| id.datagrams);
        let mut new = Id::filed(event.handle(), child, on, datagrams);
        new.remote_ece = event.ece();
        let channel = self.channels.get_mut(on)?;
        if listener.is_none() {
            // It cannot be answered. If the destroy fails, the id stays until its channel is closed.
            let _ = new.destroy(channel);
            return None;
        }
        self.ids.insert(child, new).ok()?;
        channel.ids += 1;
        listener
    }

    /// Returns the id of the event that was read last, and its listener.
    fn subject(&mut self, on: ChannelKey, child: IdKey) -> Option<(IdKey, Option<IdKey>)> {
        let event = Answer(&self.answer);
        let kind = event.kind();
        if kind == CmEvent::ConnectRequest {
            return self.file_child(on, child).map(|listener| (child, Some(listener)));
        }
        if matches!(kind, CmEvent::MulticastJoin | CmEvent::MulticastError) {
            let group = GroupKey::from_bits(event.uid())?;
            return self.groups.iter().find(|known| known.key == group).map(|known| (known.id, None));
        }
        let (key, ece) = (self.known(event.uid())?, event.ece());
        if kind == CmEvent::ConnectResponse
            && let Some(id) = self.ids.get_mut(key)
        {
            id.remote_ece = ece;
        }
        Some((key, None))
    }

    fn raw(&self, id: IdKey, listener: Option<IdKey>) -> RawEvent<&[u8]> {
        let event = Answer(&self.answer);
        let kind = event.kind();
        let mut raw = RawEvent { listener, status: event.status(), ..RawEvent::new(id, kind) };
        match contents(kind) {
            Contents::Nothing => {}
            Contents::Group => {
                raw.group = GroupKey::from_bits(event.uid());
                raw.datagram = (kind == CmEvent::MulticastJoin).then(|| event.datagram());
            }
            Contents::Parameters if self.ids.get(id).is_some_and(|id| id.datagrams) => {
                raw.datagram = (kind == CmEvent::Established).then(|| event.datagram());
                raw.private_data = event.ud_private();
            }
            Contents::Parameters => {
                raw.param = ReceivedParam(event.conn());
                raw.private_data = event.conn_private();
            }
        }
        raw
    }

    fn address(&self, key: IdKey, at: usize) -> Result<SocketAddr, Errno> {
        let (id, channel) = self.find(key)?;
        let mut answer = [0; offset::ADDR_LEN];
        let id = id.handle;
        channel.ask(abi::Query { response: 0, id, option: abi::QUERY_ADDR }, &mut answer)?;
        let none = |addr: &SocketAddr| addr.ip().is_unspecified() && addr.port() == 0;
        answer::address(&answer, at).filter(|addr| !none(addr)).ok_or(Errno(libc::EADDRNOTAVAIL))
    }
}

impl Device for KernelCm {
    type Handle = KernelHandle;

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        // Reserves first, so that a request is not lost for lack of a slot.
        self.ids.reserve(child)?;
        for _ in 0..STRAY_MAX {
            // An older kernel writes less; the rest stays zero.
            self.answer[offset::EVENT_LEN_OLD..].fill(0);
            match self.channels.get(on).ok_or(Errno::EBADF)?.event(&mut self.answer) {
                Ok(()) => {}
                Err(Errno(libc::EAGAIN)) => return Ok(None),
                Err(Errno(libc::EINTR)) => continue,
                Err(errno) => return Err(errno),
            }
            if let Some((id, listener)) = self.subject(on, child) {
                return Ok(Some(self.raw(id, listener)));
            }
        }
        Err(Errno::EIO)
    }

    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        match *call {
            Call::OpenChannel { channel } => return self.open_channel(channel),
            Call::CloseChannel { channel } => return self.close_channel(channel),
            Call::CreateId { id, channel, port_space } => return self.create_id(id, channel, port_space),
            Call::Join { id, group, ref addr, send_only } => return self.join(id, group, addr, send_only),
            Call::Leave { id, group, addr: _ } => return self.leave(id, group),
            Call::Migrate { id, from: _, to } => return self.migrate(id, to),
            Call::Destroy { id } => return self.destroy(id),
            Call::SetEce { id, ece } => {
                self.ids.get_mut(id).ok_or(Errno::ENOENT)?.local_ece = ece;
                return Ok(());
            }
            Call::Bind { .. }
            | Call::ResolveAddr { .. }
            | Call::ResolveRoute { .. }
            | Call::Listen { .. }
            | Call::Connect { .. }
            | Call::Accept { .. }
            | Call::Reject { .. }
            | Call::Establish { .. }
            | Call::Disconnect { .. }
            | Call::Notify { .. }
            | Call::SetOption { .. } => {}
        }
        let (id, channel) = self.find(call.id().ok_or(Errno::EINVAL)?)?;
        id.call(channel, call, private_data, self.depth)
    }

    fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        self.address(id, offset::ADDR_SRC)
    }

    fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        self.address(id, offset::ADDR_DST)
    }

    fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno> {
        Ok(self.find(id)?.0.remote_ece)
    }

    /// # Errors
    /// `EINVAL` also for an id that is in a multicast group.
    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<KernelHandle, Errno> {
        let owner = self.channels.get(channel).ok_or(Errno::ENOENT)?;
        if self.ids.get(id).ok_or(Errno::ENOENT)?.channel != channel || owner.ids != 1 {
            return Err(Errno::EINVAL);
        }
        if self.groups.iter().any(|group| group.id == id) {
            return Err(Errno::EINVAL);
        }
        let id = self.ids.remove(id).ok_or(Errno::ENOENT)?;
        self.adopted.remove(&id.uid);
        let channel = self.channels.remove(channel).ok_or(Errno::ENOENT)?;
        Ok(KernelHandle { id, channel })
    }

    fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: KernelHandle) -> Result<(), Errno> {
        let KernelHandle { id: mut record, channel: owner } = handle;
        self.ids.reserve(id)?;
        self.channels.reserve(channel)?;
        record.channel = channel;
        if record.uid != id {
            self.adopted.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            self.adopted.insert(record.uid, id);
        }
        self.channels.insert(channel, owner).map_err(|_| Errno::EINVAL)?;
        self.ids.insert(id, record).map_err(|_| Errno::EINVAL)
    }
}

impl Pollable for KernelCm {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.channels.get(on).map(Channel::fd)
    }

    fn sibling(&self) -> Self {
        Self::empty(self.depth)
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
