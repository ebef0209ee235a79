//! A device that records the calls of its data path.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use cmid_proto::datapath::{
    self, Access, AhAttr, AsyncEvent, AsyncEventQueue, Attaching, Caps, Completion, CompletionChannel, CompletionQueue,
    CqRoom, CreateError, DataPath, DeviceAttrs, Memory, Pool, PortAttrs, PortGid, PortState, PostReason,
    ProtectionDomain, QpState, Remote, SrqCaps, Unpolled,
};
use cmid_proto::memory::{self, Buffer, PdState};
use cmid_proto::{Call, ChannelKey, Device, DeviceLayer, Ece, Errno, ErrorWith, IdKey, Outcome, Pollable, RawEvent};

/// A call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Log {
    DeviceOf,
    AllocPd(u32),
    CreateCq(u32, u32, u32),
    AsyncEvents,
    CreateCompChannel,
    CreateCqWithChannel(u32),
    CreateQp(u32),
    CreateQpWithSrq(u32),
    DestroyQp,
}

#[derive(Debug, Default)]
pub(crate) struct Paths {
    pub(crate) log: Vec<Log>,
    pub(crate) fails: bool,
}

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
    type Nic = u32;
    type AsyncEvents = Events;

    fn device_of(&mut self, _: IdKey) -> Result<u32, CreateError> {
        self.log.push(Log::DeviceOf);
        if self.fails { Err(Errno::ENODEV.into()) } else { Ok(3) }
    }

    fn alloc_pd_on(&mut self, nic: &u32) -> Result<Pd, CreateError> {
        self.log.push(Log::AllocPd(*nic));
        Ok(Pd)
    }

    fn comp_vectors(&self, nic: &u32) -> u32 {
        nic + 1
    }

    fn device_attrs(&self, nic: &u32) -> Result<DeviceAttrs, Errno> {
        Ok(DeviceAttrs::named(format!("test{nic}")))
    }

    fn port_attrs(&self, _: &u32, port: u8) -> Result<PortAttrs, Errno> {
        if port == 1 { Ok(PortAttrs::in_state(PortState::ACTIVE)) } else { Err(Errno::EINVAL) }
    }

    fn gids(&self, _: &u32, _: u8) -> Result<Vec<PortGid>, Errno> {
        Ok(Vec::new())
    }

    fn path_mtu(&mut self, _: IdKey) -> Result<u32, CreateError> {
        Ok(1024)
    }

    fn create_cq_at(&mut self, nic: &u32, depth: u32, vector: u32) -> Result<Cq, CreateError> {
        self.log.push(Log::CreateCq(*nic, depth, vector));
        Ok(Cq::new(depth, Vec::new()))
    }

    fn create_comp_channel(&mut self, _: &u32) -> Result<CompChannel, CreateError> {
        self.log.push(Log::CreateCompChannel);
        Ok(CompChannel)
    }

    fn create_cq_with_channel(&mut self, _: &u32, _: &CompChannel, depth: u32, _: u32) -> Result<Cq, CreateError> {
        self.log.push(Log::CreateCqWithChannel(depth));
        Ok(Cq::new(depth, Vec::new()))
    }

    fn async_events(&mut self, _: &u32) -> Result<Events, CreateError> {
        self.log.push(Log::AsyncEvents);
        Ok(Events)
    }

    fn create_qp(&mut self, _: Attaching<'_>, _: &Pd, _: &Cq, _: &Cq, caps: Caps) -> Result<Qp, CreateError> {
        self.log.push(Log::CreateQp(caps.max_send_wr));
        Ok(Qp::default())
    }

    fn create_qp_with_srq(
        &mut self,
        _: Attaching<'_>,
        _: &Pd,
        _: &Cq,
        _: &Cq,
        srq: &Srq,
        _: Caps,
    ) -> Result<Qp, CreateError> {
        self.log.push(Log::CreateQpWithSrq(srq.0.max_wr));
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
    type Inner = Paths;

    fn inner(&self) -> &Paths {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut Paths {
        &mut self.0
    }

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
