//! What differs between sideway's classic and extended queues.

use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use sideway::ibverbs::completion::{BasicCompletionQueue, ExtendedCompletionQueue, GenericCompletionQueue};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, ExtendedQueuePair, QueuePair, QueuePairBuilder, SendOperationFlags,
};

pub(crate) trait Calls {
    type Qp: QueuePair;
    type Cq;

    /// `polled` is the number of completions for which a call of ibv_poll_cq(3) has room.
    fn cq(context: &Arc<DeviceContext>, depth: u32, polled: u32) -> Result<Self::Cq>;
    fn qp(pd: &Arc<ProtectionDomain>, cq: &Self::Cq, depth: u32) -> Result<Self::Qp>;
    /// The status and `wr_id` of the first completion of a poller, which is dropped.
    fn first(cq: &Self::Cq) -> Result<Option<(u32, u64)>>;
    /// The status and `wr_id` of the completions of a poller, of which there are at least `count`. After a call of
    /// ibv_next_poll(3) that finds nothing, the CQ of soft-RoCE's library 44 finds nothing later either.
    fn each(cq: &Self::Cq, count: usize, each: impl FnMut(u32, u64) -> Result<()>) -> Result<()>;
}

pub(crate) struct Basic;

impl Calls for Basic {
    type Qp = BasicQueuePair;
    type Cq = Arc<BasicCompletionQueue>;

    fn cq(context: &Arc<DeviceContext>, depth: u32, polled: u32) -> Result<Self::Cq> {
        let mut cq = context.create_cq_builder().setup_cqe(depth).build()?;
        let polled = NonZeroU32::new(polled).context("no completions are polled")?;
        Arc::get_mut(&mut cq).context("the CQ is shared")?.setup_poll_batch(polled);
        Ok(cq)
    }

    fn qp(pd: &Arc<ProtectionDomain>, cq: &Self::Cq, depth: u32) -> Result<Self::Qp> {
        Ok(builder(pd, GenericCompletionQueue::from(Arc::clone(cq)), depth).build()?)
    }

    #[inline(always)]
    fn first(cq: &Self::Cq) -> Result<Option<(u32, u64)>> {
        Ok(cq.start_poll()?.next().map(|completion| (completion.status(), completion.wr_id())))
    }

    #[inline(always)]
    fn each(cq: &Self::Cq, count: usize, mut each: impl FnMut(u32, u64) -> Result<()>) -> Result<()> {
        cq.start_poll()?.take(count).try_for_each(|completion| each(completion.status(), completion.wr_id()))
    }
}

pub(crate) struct Extended;

impl Calls for Extended {
    type Qp = ExtendedQueuePair;
    type Cq = Arc<ExtendedCompletionQueue>;

    fn cq(context: &Arc<DeviceContext>, depth: u32, _: u32) -> Result<Self::Cq> {
        Ok(context.create_cq_builder().setup_cqe(depth).build_ex()?)
    }

    fn qp(pd: &Arc<ProtectionDomain>, cq: &Self::Cq, depth: u32) -> Result<Self::Qp> {
        let mut builder = builder(pd, GenericCompletionQueue::from(Arc::clone(cq)), depth);
        Ok(builder.setup_send_ops_flags(SendOperationFlags::Send | SendOperationFlags::Write).build_ex()?)
    }

    #[inline(always)]
    fn first(cq: &Self::Cq) -> Result<Option<(u32, u64)>> {
        Ok(cq.start_poll()?.next().map(|completion| (completion.status(), completion.wr_id())))
    }

    #[inline(always)]
    fn each(cq: &Self::Cq, count: usize, mut each: impl FnMut(u32, u64) -> Result<()>) -> Result<()> {
        cq.start_poll()?.take(count).try_for_each(|completion| each(completion.status(), completion.wr_id()))
    }
}

fn builder(pd: &Arc<ProtectionDomain>, cq: GenericCompletionQueue, depth: u32) -> QueuePairBuilder {
    let mut builder = pd.create_qp_builder();
    builder.setup_send_cq(cq.clone()).setup_recv_cq(cq).setup_max_send_wr(depth).setup_max_recv_wr(depth);
    builder.setup_max_send_sge(1).setup_max_recv_sge(1).setup_max_inline_data(0);
    builder
}
