//! The data path: a QP, a CQ and an MR of sideway.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cmid_verbs::raw::QpAttr;
use peer_common::{BYTES, is_of};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{BasicCompletionQueue, GenericCompletionQueue, PollCompletionQueueError};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, SetScatterGatherEntry, WorkRequestFlags,
};

/// The `wr_id` of each send. Receives have lower ones.
const SEND: u64 = 1 << 32;

pub(crate) struct Path {
    qp: BasicQueuePair,
    cq: Arc<BasicCompletionQueue>,
    mr: Arc<MemoryRegion>,
    /// Half of it for sends, half for receives. It is never freed.
    memory: NonNull<u8>,
}

fn context(address: Ipv4Addr) -> Result<Arc<DeviceContext>> {
    for device in &DeviceList::new()? {
        let context = device.open()?;
        let gids = context.query_gid_table()?;
        if gids.iter().any(|entry| is_of(Ipv6Addr::from(entry.gid()).octets(), address)) {
            return Ok(context);
        }
    }
    None.with_context(|| format!("no device has the address {address}"))
}

impl Path {
    /// Creates the objects on the device with this address.
    pub(crate) fn open(address: Ipv4Addr) -> Result<Self> {
        let context = context(address)?;
        let pd = context.alloc_pd()?;
        let memory = NonNull::from(Box::leak(vec![0_u8; 2 * BYTES].into_boxed_slice())).cast::<u8>();
        // SAFETY: the memory is never freed.
        let mr = unsafe { pd.reg_mr(memory.as_ptr() as usize, 2 * BYTES, AccessFlags::LocalWrite) }?;
        let cq = context.create_cq_builder().setup_cqe(8).build()?;
        let shared = GenericCompletionQueue::from(Arc::clone(&cq));
        let mut builder = pd.create_qp_builder();
        builder.setup_send_cq(shared.clone()).setup_recv_cq(shared).setup_max_send_wr(4).setup_max_recv_wr(4);
        let qp = builder.setup_max_send_sge(1).setup_max_recv_sge(1).setup_max_inline_data(0).build()?;
        Ok(Path { qp, cq, mr, memory })
    }

    pub(crate) fn qp_num(&self) -> u32 {
        self.qp.qp_number()
    }

    /// Moves the QP to the state of the attributes.
    pub(crate) fn modify(&mut self, attr: &mut QpAttr) -> Result<()> {
        // SAFETY: both types are `struct ibv_qp_attr` of libibverbs.
        let attr = QueuePairAttribute::from(unsafe { &*attr.as_mut_ptr().cast() }, attr.mask());
        Ok(self.qp.modify(&attr)?)
    }

    fn addr(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    pub(crate) fn post_recv(&mut self, wr_id: u64) -> Result<()> {
        let (addr, lkey) = (self.addr() + BYTES as u64, self.mr.lkey());
        let mut guard = self.qp.start_post_recv();
        // SAFETY: the memory is never freed, and read only when no receive is posted.
        unsafe { guard.construct_wr(wr_id).setup_sge(lkey, addr, BYTES as u32) };
        Ok(guard.post()?)
    }

    /// Sends a number.
    pub(crate) fn send(&mut self, number: u32) -> Result<()> {
        let (addr, lkey) = (self.addr(), self.mr.lkey());
        // SAFETY: the memory is `2 * BYTES` long, aligned for bytes, and no send is in flight.
        unsafe { self.memory.cast::<[u8; 4]>().write(number.to_be_bytes()) };
        let mut guard = self.qp.start_post_send();
        let request = guard.construct_wr(SEND, WorkRequestFlags::Signaled).setup_send();
        // SAFETY: the memory is never freed, and written again only when the send has completed.
        unsafe { request.setup_sge(lkey, addr, BYTES as u32) };
        Ok(guard.post()?)
    }

    /// Waits until the send has completed and a message has arrived, and returns the number in it.
    pub(crate) fn receive(&mut self, limit: Duration) -> Result<u32> {
        let start = Instant::now();
        let (mut sent, mut received) = (false, false);
        while !(sent && received) {
            ensure!(start.elapsed() < limit, "no completions within {limit:?}: sent {sent}, received {received}");
            let poller = match self.cq.start_poll() {
                Ok(poller) => poller,
                Err(PollCompletionQueueError::CompletionQueueEmpty) => continue,
                Err(error) => return Err(error.into()),
            };
            for completion in poller {
                ensure!(completion.status() == 0, "status {}", completion.status());
                if completion.wr_id() == SEND { sent = true } else { received = true }
            }
        }
        // SAFETY: the memory is longer, aligned for bytes, and no receive is posted.
        Ok(u32::from_be_bytes(unsafe { self.memory.add(BYTES).cast::<[u8; 4]>().read() }))
    }
}
