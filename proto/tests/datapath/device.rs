//! A device that records the calls of its data path.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use cmid_proto::datapath::{
    Access, AsyncEvent, AsyncEventQueue, BatchError, Caps, Completion, CompletionChannel, CompletionQueue, CreateError,
    DataPath, PostError, ProtectionDomain, QpState, QueuePair, SendWr, Sge, SharedReceiveQueue, SrqCaps,
};
use cmid_proto::datapath::{AhAttr, Attaching, CqRoom};
use cmid_proto::memory::{self, PdState};
use cmid_proto::{Call, ChannelKey, Device, DeviceLayer, Ece, Errno, IdKey, Outcome, Pollable, RawEvent};

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
pub(crate) struct Qp;
#[derive(Debug)]
pub(crate) struct Srq(SrqCaps);
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
    /// The results of polls.
    pub(crate) ready: Vec<Result<usize, Errno>>,
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

    fn create_cq_at(&mut self, nic: &u32, depth: u32, vector: u32) -> Result<Cq, CreateError> {
        self.log.push(Log::CreateCq(*nic, depth, vector));
        Ok(Cq { depth, ready: Vec::new() })
    }

    fn create_comp_channel(&mut self, _: &u32) -> Result<CompChannel, CreateError> {
        self.log.push(Log::CreateCompChannel);
        Ok(CompChannel)
    }

    fn create_cq_with_channel(&mut self, _: &u32, _: &CompChannel, depth: u32, _: u32) -> Result<Cq, CreateError> {
        self.log.push(Log::CreateCqWithChannel(depth));
        Ok(Cq { depth, ready: Vec::new() })
    }

    fn async_events(&mut self, _: &u32) -> Result<Events, CreateError> {
        self.log.push(Log::AsyncEvents);
        Ok(Events)
    }

    fn create_qp(&mut self, _: Attaching<'_>, _: &Pd, _: &Cq, _: &Cq, caps: Caps) -> Result<Qp, CreateError> {
        self.log.push(Log::CreateQp(caps.max_send_wr));
        Ok(Qp)
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
        Ok(Qp)
    }

    fn destroy_qp(&mut self, _: IdKey) -> Result<(), Errno> {
        self.log.push(Log::DestroyQp);
        Ok(())
    }
}

impl CompletionQueue for Cq {
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        let polled = self.ready.remove(0)?;
        completions[..polled].iter_mut().for_each(|completion| completion.wr_id = 5);
        Ok(polled)
    }

    fn num(&self) -> u32 {
        self.depth
    }

    fn room(&self) -> CqRoom {
        CqRoom::new(self.depth)
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

    fn register(&self, _: impl Into<Vec<u8>>, _: Access) -> Result<Bytes, (Vec<u8>, memory::MemoryError)> {
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

impl SharedReceiveQueue for Srq {
    type Mr = Bytes;

    fn num(&self) -> u32 {
        4
    }

    fn caps(&self) -> SrqCaps {
        self.0
    }

    fn unpolled(&self) -> u32 {
        0
    }

    fn arm_limit(&self, _: u32) -> Result<(), Errno> {
        Ok(())
    }

    fn limit(&self) -> Result<u32, Errno> {
        Ok(0)
    }

    fn post_recv<'a, L: AsRef<[Sge<'a, Bytes>]>>(&mut self, _: u64, _: L) -> Result<(), PostError> {
        Ok(())
    }

    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Bytes>]>,
    {
        Ok(requests.into_iter().count())
    }
}

impl QueuePair for Qp {
    type Mr = Bytes;
    type Mw = Mw;
    type Ah = u8;

    fn num(&self) -> u32 {
        9
    }

    fn state(&self) -> Result<QpState, Errno> {
        Ok(QpState::RTS)
    }

    fn caps(&self) -> Caps {
        Caps::default()
    }

    fn post_send<'a, L: AsRef<[Sge<'a, Bytes>]>>(&mut self, _: SendWr<'a, L, u8>) -> Result<(), PostError> {
        Ok(())
    }

    fn post_sends<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = SendWr<'a, L, u8>>,
        L: AsRef<[Sge<'a, Bytes>]>,
    {
        Ok(requests.into_iter().count())
    }

    fn post_recv<'a, L: AsRef<[Sge<'a, Bytes>]>>(&mut self, _: u64, _: L) -> Result<(), PostError> {
        Ok(())
    }

    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Bytes>]>,
    {
        Ok(requests.into_iter().count())
    }

    fn post_bind(&mut self, _: u64, _: &mut Mw, _: &Bytes, _: Range<usize>, _: Access) -> Result<(), PostError> {
        Ok(())
    }

    fn post_invalidate(&mut self, _: u64, _: &mut Mw) -> Result<(), PostError> {
        Ok(())
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
    type Handle = ();

    fn inner(&self) -> &Paths {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut Paths {
        &mut self.0
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<(), Errno> {
        self.0.release(id, channel)
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
