//! The simulated device with a count of its own allocations, so that a test can subtract them.

use std::alloc::System;
use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use cmid_epoll::proto::datapath::{
    Access, BatchError, Caps, Completion, CreateError, DataPath, ModifyError, Part, Parts, PostError, QpAttrs, QpState,
    SendWr, Sge, Unpolled, Unposted, UnpostedBatch, prelude::*,
};
use cmid_epoll::proto::datapath::{Attaching, CqRoom};
use cmid_epoll::proto::{Call, ChannelKey, Device, Ece, Errno, IdKey, Outcome, Pollable, RawEvent};
use cmid_epoll::sim::{self, Fabric, SimDevice};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

thread_local! {
    static OF_SIMULATOR: Cell<usize> = const { Cell::new(0) };
}

fn all() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// The allocations of this process outside of the simulator, if one thread runs.
pub(crate) fn allocations() -> usize {
    all() - OF_SIMULATOR.get()
}

/// Runs a part of the simulator.
pub(crate) fn simulator<T>(action: impl FnOnce() -> T) -> T {
    let before = all();
    let result = action();
    OF_SIMULATOR.set(OF_SIMULATOR.get() + all() - before);
    result
}

/// Methods that are the simulator's own: their allocations are not subtracted.
macro_rules! forward {
    () => {};
    (fn $name:ident(&mut $of:ident $(, $given:ident: $type:ty)*) -> $result:ty; $($others:tt)*) => {
        fn $name(&mut $of $(, $given: $type)*) -> $result {
            $of.0.$name($($given),*)
        }
        forward! { $($others)* }
    };
    (fn $name:ident(&$of:ident $(, $given:ident: $type:ty)*) -> $result:ty; $($others:tt)*) => {
        fn $name(&$of $(, $given: $type)*) -> $result {
            $of.0.$name($($given),*)
        }
        forward! { $($others)* }
    };
}

/// The simulated device.
pub(crate) struct Quiet(pub(crate) SimDevice);

impl Device for Quiet {
    type Handle = <SimDevice as Device>::Handle;

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        simulator(|| self.0.fetch(on, child))
    }

    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        simulator(|| self.0.call(call, private_data))
    }

    forward! {
        fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno>;
        fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno>;
        fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno>;
        fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Self::Handle, Errno>;
        fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Self::Handle) -> Outcome;
    }
}

impl Pollable for Quiet {
    fn sibling(&self) -> Self {
        Quiet(self.0.sibling())
    }

    forward! {
        fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>>;
    }
}

impl DataPath for Quiet {
    type Pd = sim::Pd;
    type Mr = sim::Mr;
    type Mw = sim::Mw;
    type Cq = QuietCq;
    type CompChannel = sim::CompChannel;
    type Qp = QuietQp;
    type Ah = sim::Ah;
    type Srq = sim::Srq;
    type Piece = sim::Piece;
    type Nic = sim::Nic;
    type AsyncEvents = sim::AsyncEvents;

    fn create_cq_at(
        &mut self,
        nic: &sim::Nic,
        channel: Option<&sim::CompChannel>,
        depth: u32,
        vector: u32,
    ) -> Result<QuietCq, CreateError> {
        self.0.create_cq_at(nic, channel, depth, vector).map(QuietCq)
    }

    fn make_qp(
        &mut self,
        attaching: Attaching<'_>,
        pd: &sim::Pd,
        [send_cq, recv_cq]: [&QuietCq; 2],
        srq: Option<&sim::Srq>,
        caps: Caps,
    ) -> Result<QuietQp, CreateError> {
        self.0.make_qp(attaching, pd, [&send_cq.0, &recv_cq.0], srq, caps).map(QuietQp)
    }

    forward! {
        fn device_of(&mut self, id: IdKey) -> Result<sim::Nic, CreateError>;
        fn alloc_pd_on(&mut self, nic: &sim::Nic) -> Result<sim::Pd, CreateError>;
        fn create_comp_channel(&mut self, nic: &sim::Nic) -> Result<sim::CompChannel, CreateError>;
        fn async_events(&mut self, nic: &sim::Nic) -> Result<sim::AsyncEvents, CreateError>;
        fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno>;
    }
}

pub(crate) struct QuietCq(sim::Cq);

impl CompletionQueue for QuietCq {
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        simulator(|| self.0.poll(completions))
    }

    forward! {
        fn wait(&mut self, completions: &mut [Completion]) -> Result<usize, Errno>;
        fn num(&self) -> u32;
        fn room(&self) -> CqRoom;
        fn resize(&mut self, depth: u32) -> Result<(), CreateError>;
        fn is_idle(&self) -> bool;
        fn arm(&self) -> Result<(), Errno>;
        fn arm_solicited(&self) -> Result<(), Errno>;
        fn moderate(&self, count: u16, period_us: u16) -> Result<(), Errno>;
        fn fd(&self) -> BorrowedFd<'_>;
        fn take_notifications(&self) -> Result<u32, Errno>;
    }
}

pub(crate) struct QuietQp(sim::Qp);

impl QueuePair for QuietQp {
    type Mr = sim::Mr;
    type Mw = sim::Mw;
    type Ah = sim::Ah;
    type Piece = sim::Piece;

    fn post_send<'a, L>(&mut self, request: SendWr<'a, L, sim::Ah>) -> Result<(), PostError>
    where
        L: AsRef<[Sge<'a, sim::Mr>]>,
    {
        simulator(|| self.0.post_send(request))
    }

    fn post_sends<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = SendWr<'a, L, sim::Ah>>,
        L: AsRef<[Sge<'a, sim::Mr>]>,
    {
        simulator(|| self.0.post_sends(requests))
    }

    fn post_recv<'a, L>(&mut self, wr_id: u64, sges: L) -> Result<(), PostError>
    where
        L: AsRef<[Sge<'a, sim::Mr>]>,
    {
        simulator(|| self.0.post_recv(wr_id, sges))
    }

    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, sim::Mr>]>,
    {
        simulator(|| self.0.post_recvs(requests))
    }

    fn post_send_blocks<L: Into<Parts<sim::Piece>>>(
        &mut self,
        request: SendWr<'_, L, sim::Ah>,
    ) -> Result<(), Unposted<sim::Piece>> {
        simulator(|| self.0.post_send_blocks(request))
    }

    fn post_sends_blocks<'a, L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<sim::Piece>>
    where
        I: IntoIterator<Item = SendWr<'a, L, sim::Ah>>,
        L: Into<Parts<sim::Piece>>,
    {
        simulator(|| self.0.post_sends_blocks(requests))
    }

    fn post_recv_blocks<L: Into<Parts<sim::Piece>>>(
        &mut self,
        wr_id: u64,
        blocks: L,
    ) -> Result<(), Unposted<sim::Piece>> {
        simulator(|| self.0.post_recv_blocks(wr_id, blocks))
    }

    fn post_recvs_blocks<L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<sim::Piece>>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: Into<Parts<sim::Piece>>,
    {
        simulator(|| self.0.post_recvs_blocks(requests))
    }

    fn post_bind_block<L: Into<Part<sim::Piece>>>(
        &mut self,
        wr_id: u64,
        window: &mut sim::Mw,
        part: L,
        access: Access,
    ) -> Result<(), Unposted<sim::Piece>> {
        self.0.post_bind_block(wr_id, window, part, access)
    }

    fn reclaim(&mut self, completion: &Completion) -> Option<Parts<sim::Piece>> {
        simulator(|| self.0.reclaim(completion))
    }

    forward! {
        fn num(&self) -> u32;
        fn state(&self) -> Result<QpState, Errno>;
        fn caps(&self) -> Caps;
        fn modify(&mut self, attrs: QpAttrs) -> Result<(), ModifyError>;
        fn attrs(&self) -> Result<QpAttrs, Errno>;
        fn unpolled(&self) -> Unpolled;
        fn post_bind(&mut self, wr_id: u64, window: &mut sim::Mw, mr: &sim::Mr, range: Range<usize>, access: Access)
            -> Result<(), PostError>;
        fn post_invalidate(&mut self, wr_id: u64, window: &mut sim::Mw) -> Result<(), PostError>;
    }
}

/// Advances the simulator's time.
pub(crate) fn advance(fabric: &Fabric, by: std::time::Duration) {
    simulator(|| fabric.advance_by(by));
}
