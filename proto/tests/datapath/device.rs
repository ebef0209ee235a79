//! A device that records the calls of its data path.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use cmid_proto::datapath::{
    self, Access, AhAttr, AsyncEvent, AsyncEventQueue, Attaching, Caps, Completion, CompletionChannel, CompletionQueue,
    CqRoom, CreateError, DataPath, DeviceAttrs, Memory, Pool, PortAttrs, PortGid, PortState, PostReason,
    ProtectionDomain, QpState, RdmaDevice, Remote, SrqCaps, Unpolled,
};
use cmid_proto::memory::{self, Buffer, PdState};
use cmid_proto::{Call, ChannelKey, Device, DeviceLayer, Ece, Errno, ErrorWith, IdKey, Outcome, Pollable, RawEvent};

/// A call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Log {
    DeviceOf,
    AllocPd(u32),
    /// The device, whether with a channel, depth and vector.
    CreateCq(u32, bool, u32, u32),
    AsyncEvents,
    CreateCompChannel,
    /// The work requests of the SRQ and of the QP.
    CreateQp(Option<u32>, u32, u32),
    DestroyQp,
}

#[derive(Debug, Default)]
pub(crate) struct Paths {
    pub(crate) log: Vec<Log>,
    pub(crate) fails: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Nic(pub(crate) u32);
#[derive(Clone, Debug)]
pub(crate) struct Pd;
#[derive(Debug)]
pub(crate) struct Mw;
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) state: Result<QpState, Errno>,
    /// What is left, at each question.
    pub(crate) left: RefCell<VecDeque<Unpolled>>,
    /// The answers to sends, and the `wr_id`s of those that are posted.
    pub(crate) refusals: Vec<PostReason>,
    pub(crate) sent: Vec<u64>,
}

impl Default for Qp {
    fn default() -> Self {
        Qp { state: Ok(QpState::RTS), left: RefCell::default(), refusals: Vec::new(), sent: Vec::new() }
    }
}
#[derive(Debug)]
pub(crate) struct Srq(pub(crate) SrqCaps);
#[derive(Debug)]
pub(crate) struct Events;
#[derive(Debug)]
pub(crate) struct CompChannel;
/// Memory at address 4096 with the key 6.
#[derive(Debug)]
pub(crate) struct Bytes(pub(crate) [u8; 9]);
#[derive(Debug)]
pub(crate) struct Cq {
    depth: u32,
    /// Each of its completions.
    pub(crate) completion: Completion,
    /// The results of polls.
    pub(crate) ready: Vec<Result<usize, Errno>>,
}

/// Plain memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plain(pub(crate) Vec<u8>);

impl From<Vec<u8>> for Plain {
    fn from(bytes: Vec<u8>) -> Self {
        Plain(bytes)
    }
}

impl Buffer for Plain {
    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Memory for Plain {
    type Shared = Plain;

    fn share(self) -> Plain {
        self
    }

    fn into_vec(self) -> Result<Vec<u8>, Plain> {
        Ok(self.0)
    }
}

/// A piece of plain memory.
#[derive(Debug)]
pub(crate) struct Piece(pub(crate) Vec<u8>);

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl datapath::Piece for Piece {
    fn remote(&self, offset: usize) -> Remote {
        Remote { addr: offset as u64, rkey: 6 }
    }
}

impl RdmaDevice for Nic {
    fn port_num(&self) -> u8 {
        1
    }

    fn comp_vectors(&self) -> u32 {
        self.0 + 1
    }

    fn attrs(&self) -> Result<DeviceAttrs, Errno> {
        Ok(DeviceAttrs::named(format!("test{}", self.0)))
    }

    fn port_attrs(&self, port: u8) -> Result<PortAttrs, Errno> {
        let mut attrs = PortAttrs::in_state(PortState::ACTIVE);
        attrs.active_mtu = 1024;
        if port == 1 { Ok(attrs) } else { Err(Errno::EINVAL) }
    }

    fn gids(&self, _: u8) -> Result<Vec<PortGid>, Errno> {
        Ok(Vec::new())
    }
}

impl DataPath for Paths {
    type Pd = Pd;
    type Mr = Bytes;
    type Mw = Mw;
    type Cq = Cq;
    type CompChannel = CompChannel;
    type Qp = Qp;
    type Ah = u8;
    type Srq = Srq;
    type Piece = Piece;
    type Nic = Nic;
    type AsyncEvents = Events;

    fn device_of(&mut self, _: IdKey) -> Result<Nic, CreateError> {
        self.log.push(Log::DeviceOf);
        if self.fails { Err(Errno::ENODEV.into()) } else { Ok(Nic(3)) }
    }

    fn alloc_pd_on(&mut self, nic: &Nic) -> Result<Pd, CreateError> {
        self.log.push(Log::AllocPd(nic.0));
        Ok(Pd)
    }

    fn make_cq(
        &mut self,
        nic: &Nic,
        channel: Option<&CompChannel>,
        depth: u32,
        vector: u32,
    ) -> Result<Cq, CreateError> {
        self.log.push(Log::CreateCq(nic.0, channel.is_some(), depth, vector));
        Ok(Cq::new(depth, Vec::new()))
    }

    fn create_comp_channel(&mut self, _: &Nic) -> Result<CompChannel, CreateError> {
        self.log.push(Log::CreateCompChannel);
        Ok(CompChannel)
    }

    fn async_events(&mut self, _: &Nic) -> Result<Events, CreateError> {
        self.log.push(Log::AsyncEvents);
        Ok(Events)
    }

    fn make_qp(
        &mut self,
        _: Attaching<'_>,
        _: &Pd,
        _: [&Cq; 2],
        srq: Option<&Srq>,
        caps: Caps,
    ) -> Result<Qp, CreateError> {
        self.log.push(Log::CreateQp(srq.map(|srq| srq.0.max_wr), caps.max_send_wr, caps.max_recv_wr));
        Ok(Qp::default())
    }

    fn destroy_qp(&mut self, _: IdKey) -> Result<(), Errno> {
        self.log.push(Log::DestroyQp);
        Ok(())
    }
}

impl Cq {
    pub(crate) fn new(depth: u32, ready: Vec<Result<usize, Errno>>) -> Self {
        Cq { depth, completion: Completion { wr_id: 5, ..Completion::default() }, ready }
    }
}

impl CompletionQueue for Cq {
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        let polled = self.ready.remove(0)?;
        completions[..polled].fill(self.completion);
        Ok(polled)
    }

    fn wait(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        self.poll_or_arm(completions)
    }

    fn num(&self) -> u32 {
        self.depth
    }

    fn room(&self) -> CqRoom {
        CqRoom::new(self.depth)
    }

    fn resize(&mut self, depth: u32) -> Result<(), CreateError> {
        self.depth = depth;
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    fn arm(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn arm_solicited(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn moderate(&self, _: u16, _: u16) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        unreachable!("it has no descriptor")
    }

    fn take_notifications(&self) -> Result<u32, Errno> {
        Ok(0)
    }
}

impl ProtectionDomain for Pd {
    type Mr = Bytes;
    type Mw = Mw;
    type Ah = u8;
    type Srq = Srq;
    type Piece = Piece;

    fn pool_with(
        &self,
        _: &[Pd],
        _: impl Into<Plain>,
        block_len: usize,
        _: Access,
    ) -> Result<Pool<Piece>, ErrorWith<Plain, memory::MemoryError>> {
        Pool::of(1, [Ok(Piece(vec![0; block_len]))]).map_err(|_| unreachable!("a block can be had"))
    }

    fn register(&self, _: impl Into<Plain>, _: Access) -> Result<Bytes, ErrorWith<Plain, memory::MemoryError>> {
        Ok(Bytes([0; 9]))
    }

    fn alloc_mw(&self) -> Result<Mw, CreateError> {
        Ok(Mw)
    }

    fn create_ah(&self, _: &AhAttr) -> Result<u8, CreateError> {
        Ok(7)
    }

    fn create_ah_from(&self, _: &Completion, _: &Bytes, _: usize) -> Result<u8, CreateError> {
        Ok(7)
    }

    fn create_srq(&self, caps: SrqCaps) -> Result<Srq, CreateError> {
        Ok(Srq(caps))
    }

    fn users(&self) -> u32 {
        0
    }

    fn state(&self) -> PdState {
        PdState::Gone
    }

    fn dealloc(&self) -> Result<(), memory::MemoryError> {
        Ok(())
    }
}

impl CompletionChannel for CompChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        unreachable!("it has no descriptor")
    }

    fn next_notification(&self) -> Result<Option<u32>, Errno> {
        Ok(None)
    }
}

impl AsyncEventQueue for Events {
    fn fd(&self) -> BorrowedFd<'_> {
        unreachable!("it has no descriptor")
    }

    fn next_event(&mut self) -> Result<Option<AsyncEvent>, Errno> {
        Ok(None)
    }
}

impl Device for Paths {
    type Handle = ();

    fn fetch(&mut self, _: ChannelKey, _: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        Ok(None)
    }

    fn call(&mut self, _: &Call, _: &[u8]) -> Outcome {
        Ok(())
    }

    fn local_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Err(Errno::EINVAL)
    }

    fn peer_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Err(Errno::EINVAL)
    }

    fn remote_ece(&self, _: IdKey) -> Result<Ece, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn release(&mut self, _: IdKey, _: ChannelKey) -> Result<(), Errno> {
        Ok(())
    }

    fn adopt(&mut self, _: IdKey, _: ChannelKey, (): ()) -> Outcome {
        Ok(())
    }
}

impl Pollable for Paths {
    fn fd(&self, _: ChannelKey) -> Option<BorrowedFd<'_>> {
        None
    }

    fn sibling(&self) -> Self {
        Paths::default()
    }
}

/// A layer that changes nothing.
pub(crate) struct Layer(pub(crate) Paths);

impl DeviceLayer for Layer {
    cmid_proto::layer_on!(0: Paths);

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, (): ()) -> Outcome {
        self.0.adopt(id, channel, ())
    }
}

impl Pollable for Layer {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.0.fd(on)
    }

    fn sibling(&self) -> Self {
        Layer(self.0.sibling())
    }
}
