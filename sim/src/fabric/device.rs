//! The device of one process on one host; implements the core's `Device`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use cmid_proto::datapath::DataPath;
use cmid_proto::key_table::KeyTable;
use cmid_proto::{Call, ChannelKey, Device, Ece, Errno, IdKey, Outcome, Pollable, RawEvent, Transport};

use crate::data::fault::Resource;
use crate::fabric::Fabric;
use crate::fabric::host::Host;
use crate::fabric::world::World;
use crate::index::{FileNo, IdNo};
use crate::kernel::fetch::Fetched;
use crate::kernel::host::HostState;
use crate::kernel::id::Id;
use crate::kernel::signal::Signal;

/// One process's view of a host's RDMA device. Dropping it simulates the exit of the process: its channels are closed,
/// its ids are destroyed, and peers observe the same as after an exit.
#[derive(Debug)]
pub struct SimDevice {
    host: Host,
    /// Which device of its process it is, from 1.
    number: u32,
    channels: KeyTable<ChannelKey, Channel>,
    ids: KeyTable<IdKey, IdNo>,
    /// Whether the library has found an RDMA device on the host; it checks only once (`ucma_init`).
    has_seen_device: bool,
    /// The last fetched event; its private data is borrowed by the caller.
    fetched: Option<Fetched>,
}

#[derive(Debug)]
struct Channel {
    file: FileNo,
    #[cfg_attr(not(unix), expect(dead_code, reason = "for its descriptor"))]
    signal: Arc<Signal>,
}

/// A released id and its channel. Dropping it destroys both.
#[derive(Debug)]
pub struct SimHandle {
    host: Host,
    id: IdNo,
    /// Moved to the adopting device.
    channel: Option<Channel>,
}

impl Host {
    /// Creates a device of this host: one process's view. All devices of a host share its port tables.
    #[must_use]
    pub fn device(&self) -> SimDevice {
        SimDevice::new(self.clone())
    }
}

impl Drop for SimHandle {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            self.host.fabric.with(|world| world.close_file(channel.file));
        }
    }
}

impl SimDevice {
    pub(crate) fn new(host: Host) -> Self {
        let number = host.with_state(|state| {
            state.opened = state.opened.saturating_add(1);
            state.opened
        });
        SimDevice {
            host,
            number: number.unwrap_or(1),
            channels: KeyTable::default(),
            ids: KeyTable::default(),
            has_seen_device: false,
            fetched: None,
        }
    }

    /// Logs a call or an event, and which device of its process it is of, unless it is of the first: keys are those of a device.
    fn note(&self, world: &mut World, text: impl FnOnce() -> String) {
        world.note(self.host.no, || match self.number {
            1 => text(),
            number => format!("device {number}: {}", text()),
        });
    }

    /// Returns its fabric.
    #[must_use]
    pub fn fabric(&self) -> &Fabric {
        &self.host.fabric
    }

    /// Returns its host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Whether a channel of the process has an event that was not read: without one, a program without a poller need read none.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let file_has_events = |world: &World, no| world.files.get(&no).is_some_and(|file| file.has_events());
        self.host.fabric.with(|world| self.channels.iter().any(|(_, channel)| file_has_events(world, channel.file)))
    }

    pub(crate) fn id_no(&self, key: IdKey) -> Result<IdNo, Errno> {
        self.ids.get(key).copied().ok_or(Errno::ENOENT)
    }

    fn file(&self, key: ChannelKey, otherwise: Errno) -> Result<FileNo, Errno> {
        self.channels.get(key).map(|channel| channel.file).ok_or(otherwise)
    }

    fn open_channel(&mut self, key: ChannelKey) -> Outcome {
        self.channels.reserve(key)?;
        let seen = self.has_seen_device;
        let channel = self.host.fabric.with(|world| {
            if !seen && !world.hosts.get(self.host.no.0).is_some_and(HostState::has_device) {
                return Err(Errno::ENODEV);
            }
            world.grant(self.host.no, Resource::Channel)?;
            let file = world.open_file()?;
            let signal = world.files.get(&file).ok_or(Errno::EBADF)?.waker();
            Ok(Channel { file, signal })
        })?;
        self.has_seen_device = true;
        self.channels.insert(key, channel).map_err(|_| Errno::EINVAL)
    }

    fn close_channel(&mut self, key: ChannelKey) -> Outcome {
        let channel = self.channels.remove(key).ok_or(Errno::EBADF)?;
        self.host.fabric.with(|world| world.close_file(channel.file));
        Ok(())
    }

    fn create_id(&mut self, key: IdKey, on: ChannelKey, port_space: cmid_proto::PortSpace) -> Outcome {
        self.ids.reserve(key)?;
        let file = self.file(on, Errno::EBADF)?;
        let no = self.host.fabric.with(|world| {
            world.grant(self.host.no, Resource::Id)?;
            let no = world.create_id(self.host.no, file, port_space)?;
            world.id(no)?.key = Some(key);
            Ok::<_, Errno>(no)
        })?;
        self.ids.insert(key, no).map_err(|_| Errno::EINVAL)
    }

    fn destroy(&mut self, key: IdKey) -> Outcome {
        let no = self.id_no(key)?;
        self.host.fabric.with(|world| {
            world.id(no)?;
            world.destroy_id(no);
            Ok::<_, Errno>(())
        })?;
        self.ids.remove(key);
        Ok(())
    }

    fn migrate(&self, id: IdKey, from: ChannelKey, to: ChannelKey) -> Outcome {
        // The command is written to the target channel, and names the source.
        let to = self.file(to, Errno::EBADF)?;
        let from = self.file(from, Errno::ENOENT)?;
        self.command(id, |world, no| world.migrate(no, from, to))
    }

    /// Issues a command to the kernel. If the device of the id is removed, all commands but destroy fail
    /// (`ucma_get_ctx`).
    fn command(&self, key: IdKey, action: impl FnOnce(&mut World, IdNo) -> Outcome) -> Outcome {
        self.on_id(key, |world, no| if world.id(no)?.removed { Err(Errno::ENXIO) } else { action(world, no) })
    }

    /// An action of the library without a kernel command.
    fn on_id<T>(&self, key: IdKey, action: impl FnOnce(&mut World, IdNo) -> Result<T, Errno>) -> Result<T, Errno> {
        let no = self.id_no(key)?;
        self.host.fabric.with(|world| action(world, no))
    }

    /// The fault of [`Host::fail_call`], if it is that of this call.
    fn admit_call(&self) -> Outcome {
        self.host.with_state(|host| host.faults.take_call()).unwrap_or(Ok(()))
    }

    fn make(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        match *call {
            Call::OpenChannel { channel } => self.open_channel(channel),
            Call::CloseChannel { channel } => self.close_channel(channel),
            Call::CreateId { id, channel, port_space } => self.create_id(id, channel, port_space),
            Call::Bind { id, addr } => self.command(id, |world, no| world.bind(no, addr)),
            Call::ResolveAddr { id, src, dst, timeout_ms } => {
                self.command(id, |world, no| world.resolve_addr(no, src, dst, timeout_ms))
            }
            Call::ResolveRoute { id, timeout_ms } => self.command(id, |world, no| world.resolve_route(no, timeout_ms)),
            Call::Listen { id, backlog } => self.command(id, |world, no| world.listen(no, backlog)),
            Call::Connect { id, param } => self.command(id, |world, no| world.connect(no, &param, private_data)),
            Call::Accept { id, param } => self.command(id, |world, no| world.accept(no, &param, private_data)),
            Call::Reject { id, reason } => self.command(id, |world, no| world.reject(no, reason, private_data)),
            Call::Establish { id } => self.command(id, |world, no| world.establish(no)),
            Call::Disconnect { id } => self.command(id, |world, no| world.disconnect(no)),
            Call::Notify { id } => self.command(id, |world, no| world.notify(no)),
            Call::Join { id, group, addr, send_only } => {
                self.command(id, |world, no| world.join(no, group, addr, send_only))
            }
            Call::Leave { id, group, addr } => self.on_id(id, |world, no| world.leave(no, group, addr)),
            Call::SetOption { id, option } => self.command(id, |world, no| world.set_option(no, option)),
            Call::SetEce { id, ece } => self.on_id(id, |world, no| world.set_ece(no, ece)),
            Call::Migrate { id, from, to } => self.migrate(id, from, to),
            Call::Destroy { id } => self.destroy(id),
        }
    }

    fn address_of(&self, key: IdKey, which: impl FnOnce(&Id) -> Option<SocketAddr>) -> Result<SocketAddr, Errno> {
        self.on_id(key, |world, no| {
            let id = world.ids.get(&no).ok_or(Errno::ENOENT)?;
            let host = world.hosts.get(id.host.0).ok_or(Errno::ENODEV)?;
            which(id).map(|addr| host.scoped(addr, id.known_src)).ok_or(Errno::EADDRNOTAVAIL)
        })
    }
}

impl Device for SimDevice {
    type Handle = SimHandle;

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.admit_call()?;
        // Reserves first, so that a request is not lost for lack of a slot.
        self.ids.reserve(child)?;
        let file = self.file(on, Errno::EBADF)?;
        let fetched = self.host.fabric.with(|world| {
            let fetched = world.fetch(file, child);
            if let Some(fetched) = &fetched {
                self.note(world, || fetched.text());
            }
            fetched
        });
        let Some(fetched) = fetched else { return Ok(None) };
        if let Some(no) = fetched.child() {
            self.ids.insert(child, no).map_err(|_| Errno::EINVAL)?;
        }
        Ok(Some(self.fetched.insert(fetched).raw()))
    }

    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        let outcome = self.admit_call().and_then(|()| self.make(call, private_data));
        self.host.fabric.with(|world| {
            self.note(world, || match outcome {
                Ok(()) => format!("{call:?}"),
                Err(errno) => format!("{call:?}: {errno}"),
            });
        });
        outcome
    }

    fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        self.address_of(id, |id| id.known_src)
    }

    fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        // The wildcard means no address.
        let none = |peer: &SocketAddr| peer.ip().is_unspecified() && peer.port() == 0;
        self.address_of(id, |id| id.known_dst.filter(|peer| !none(peer)))
    }

    fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno> {
        self.on_id(id, |world, no| world.remote_ece(no))
    }

    fn transport(&mut self, id: IdKey) -> Option<Transport> {
        self.on_id(id, |world, no| {
            let id = world.ids.get(&no).filter(|id| id.verbs).ok_or(Errno::ENODEV)?;
            world.hosts.get(id.host.0).map(|host| host.transport).ok_or(Errno::ENODEV)
        })
        .ok()
    }

    fn has_qp(&self, id: IdKey) -> Option<bool> {
        self.on_id(id, |world, no| Ok(world.id(no)?.qp.is_some())).ok()
    }

    fn discard_qp(&mut self, id: IdKey) {
        // It fails if there is none.
        let _: Result<(), Errno> = DataPath::destroy_qp(self, id);
    }

    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<SimHandle, Errno> {
        self.admit_call()?;
        let no = self.id_no(id)?;
        let file = self.file(channel, Errno::ENOENT)?;
        let shared = |world: &World| {
            let on_it = world.files.get(&file).map(|file| &file.ids);
            let mut others = on_it.into_iter().flat_map(BTreeMap::values).filter(|&&other| other != no);
            others.any(|other| world.ids.get(other).is_some_and(|id| id.key.is_some()))
        };
        self.host.fabric.with(|world| {
            if world.id(no)?.file != file || shared(world) {
                return Err(Errno::EINVAL);
            }
            world.id(no)?.key = None;
            Ok(())
        })?;
        self.ids.remove(id);
        Ok(SimHandle { host: self.host.clone(), id: no, channel: self.channels.remove(channel) })
    }

    /// An id cannot move to other hardware: a handle of another host is destroyed, and the result is `EINVAL`.
    fn adopt(&mut self, id: IdKey, channel: ChannelKey, mut handle: SimHandle) -> Result<(), Errno> {
        if !handle.host.fabric.is(self.fabric()) || handle.host.no != self.host.no {
            return Err(Errno::EINVAL);
        }
        self.admit_call()?;
        self.ids.reserve(id)?;
        self.channels.reserve(channel)?;
        let taken = handle.channel.take().ok_or(Errno::EINVAL)?;
        self.host.fabric.with(|world| {
            if let Ok(state) = world.id(handle.id) {
                state.key = Some(id);
            }
        });
        self.ids.insert(id, handle.id).map_err(|_| Errno::EINVAL)?;
        self.channels.insert(channel, taken).map_err(|_| Errno::EINVAL)
    }
}

impl Pollable for SimDevice {
    #[cfg(unix)]
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.channels.get(on).map(|channel| channel.signal.as_fd())
    }

    fn sibling(&self) -> Self {
        let mut sibling = self.host.device();
        sibling.has_seen_device = self.has_seen_device;
        sibling
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        let files: Vec<FileNo> = self.channels.iter().map(|(_, channel)| channel.file).collect();
        self.host.fabric.with(|world| {
            for file in files {
                world.close_file(file);
            }
        });
    }
}
