//! A model of the kernel: ids on channels, and the event of each request.

use std::collections::VecDeque;

use cmid_proto::{ChannelKey, CmEvent, Errno, Outcome};

/// Numbers of commands (`rdma/rdma_user_cm.h`).
pub(crate) const CREATE_ID: u32 = 0;
pub(crate) const DESTROY_ID: u32 = 1;
pub(crate) const RESOLVE_IP: u32 = 3;
pub(crate) const RESOLVE_ROUTE: u32 = 4;
pub(crate) const CONNECT: u32 = 6;
pub(crate) const LISTEN: u32 = 7;
pub(crate) const ACCEPT: u32 = 8;
pub(crate) const REJECT: u32 = 9;
pub(crate) const DISCONNECT: u32 = 10;
pub(crate) const INIT_QP_ATTR: u32 = 11;
pub(crate) const GET_EVENT: u32 = 12;
pub(crate) const SET_OPTION: u32 = 14;
pub(crate) const NOTIFY: u32 = 15;
pub(crate) const LEAVE_MCAST: u32 = 17;
pub(crate) const MIGRATE_ID: u32 = 18;
pub(crate) const QUERY: u32 = 19;
pub(crate) const BIND: u32 = 20;
pub(crate) const JOIN_MCAST: u32 = 22;

const EVENT: usize = 336;

struct Id {
    handle: u32,
    /// The number that its events name; 0 for a request that is not accepted.
    uid: u64,
    channel: ChannelKey,
}

struct Pending {
    /// The id that was created on its channel.
    owner: u32,
    bytes: [u8; EVENT],
}

/// The kernel. A command fails if `fail` names its number in the order of commands.
#[derive(Default)]
pub(crate) struct Scripted {
    // Vectors keep their memory, so that they stop allocating once they have grown.
    ids: Vec<Id>,
    /// Memberships, each with its id.
    groups: Vec<(u32, u32)>,
    handles: u32,
    /// The id that listens.
    listener: u32,
    pending: VecDeque<Pending>,
    /// The channel of the next command. The script does not get descriptors.
    pub(crate) channel: Option<ChannelKey>,
    pub(crate) commands: usize,
    fail: Option<(usize, Errno)>,
    /// The command that has failed.
    pub(crate) failed: Option<u32>,
}

impl Scripted {
    /// Creates a kernel that fails the `nth` command with `errno`.
    pub(crate) fn failing(nth: usize, errno: Errno) -> Self {
        Scripted { fail: Some((nth, errno)), ..Scripted::default() }
    }

    pub(crate) fn answer(&mut self, command: &[u8], into: &mut [u8]) -> Outcome {
        let number = self.commands;
        self.commands += 1;
        if let Some((nth, errno)) = self.fail {
            if nth == number {
                self.failed = Some(word(command, 0));
                return Err(errno);
            }
        }
        self.make(command, into)
    }

    fn make(&mut self, command: &[u8], into: &mut [u8]) -> Outcome {
        match word(command, 0) {
            CREATE_ID => {
                let handle = self.create(long(command, 8), self.channel.ok_or(Errno::EINVAL)?);
                into[..4].copy_from_slice(&handle.to_ne_bytes());
            }
            DESTROY_ID => {
                let handle = word(command, 16);
                self.id(handle)?;
                self.ids.retain(|id| id.handle != handle);
                self.groups.retain(|(_, owner)| *owner != handle);
                self.pending.retain(|event| event.owner != handle);
            }
            RESOLVE_IP => self.event(word(command, 64), CmEvent::AddrResolved)?,
            RESOLVE_ROUTE => self.event(word(command, 8), CmEvent::RouteResolved)?,
            CONNECT => self.event(word(command, 280), CmEvent::ConnectResponse)?,
            LISTEN => self.request(word(command, 8))?,
            ACCEPT => {
                let handle = word(command, 288);
                // An accept without parameters is the third message of the handshake.
                if command[287] != 0 {
                    self.id_mut(handle)?.uid = long(command, 8);
                    self.event(handle, CmEvent::Established)?;
                }
            }
            DISCONNECT => self.event(word(command, 8), CmEvent::Disconnected)?,
            REJECT | BIND | NOTIFY => _ = self.id(word(command, 8))?,
            SET_OPTION | INIT_QP_ATTR => _ = self.id(word(command, 16))?,
            QUERY => {
                self.id(word(command, 16))?;
                // The GUID and the port of the device.
                into[..9].copy_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0, 1]);
            }
            MIGRATE_ID => {
                let to = self.channel.ok_or(Errno::EINVAL)?;
                self.id_mut(word(command, 16))?.channel = to;
            }
            JOIN_MCAST => {
                let owner = word(command, 24);
                self.handles += 1;
                self.groups.push((self.handles, owner));
                into[..4].copy_from_slice(&self.handles.to_ne_bytes());
                self.push(owner, long(command, 16), CmEvent::MulticastJoin, self.handles)?;
            }
            LEAVE_MCAST => {
                let group = word(command, 16);
                let at = self.groups.iter().position(|(handle, _)| *handle == group).ok_or(Errno::ENOENT)?;
                self.groups.remove(at);
            }
            GET_EVENT => {
                let here = |event: &Pending| self.id(event.owner).is_ok_and(|id| Some(id.channel) == self.channel);
                let at = self.pending.iter().position(here).ok_or(Errno::EAGAIN)?;
                let event = self.pending.remove(at).ok_or(Errno::EAGAIN)?;
                into.copy_from_slice(&event.bytes);
            }
            other => panic!("command {other}"),
        }
        Ok(())
    }

    fn create(&mut self, uid: u64, channel: ChannelKey) -> u32 {
        self.handles += 1;
        self.ids.push(Id { handle: self.handles, uid, channel });
        self.handles
    }

    fn id(&self, handle: u32) -> Result<&Id, Errno> {
        self.ids.iter().find(|id| id.handle == handle).ok_or(Errno::ENOENT)
    }

    fn id_mut(&mut self, handle: u32) -> Result<&mut Id, Errno> {
        self.ids.iter_mut().find(|id| id.handle == handle).ok_or(Errno::ENOENT)
    }

    /// Makes another connection request to the listener.
    pub(crate) fn request_again(&mut self) {
        self.request(self.listener).expect("a listener");
    }

    /// Makes a connection request: a new id on the listener's channel.
    fn request(&mut self, listener: u32) -> Outcome {
        self.listener = listener;
        let child = self.create(0, self.id(listener)?.channel);
        self.push(listener, self.id(listener)?.uid, CmEvent::ConnectRequest, child)
    }

    fn event(&mut self, owner: u32, kind: CmEvent) -> Outcome {
        self.push(owner, self.id(owner)?.uid, kind, owner)
    }

    fn push(&mut self, owner: u32, uid: u64, kind: CmEvent, handle: u32) -> Outcome {
        self.id(owner)?;
        let mut bytes = [0; EVENT];
        bytes[..8].copy_from_slice(&uid.to_ne_bytes());
        bytes[8..12].copy_from_slice(&handle.to_ne_bytes());
        bytes[12..16].copy_from_slice(&kind.code().to_ne_bytes());
        self.pending.push_back(Pending { owner, bytes });
        Ok(())
    }

    /// Returns the numbers of ids and memberships.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.ids.len(), self.groups.len())
    }

    /// Ends the ids of a closed channel. Returns their number.
    pub(crate) fn closed(&mut self, channel: ChannelKey) -> usize {
        let before = self.ids.len();
        self.ids.retain(|id| id.channel != channel);
        before - self.ids.len()
    }
}

fn word(from: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(from[at..at + 4].try_into().expect("4 bytes"))
}

fn long(from: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(from[at..at + 8].try_into().expect("8 bytes"))
}
