//! The jobs on the crate rdma-io 0.0.2. A post is one work request, with its ranges in a `Vec`; there are no batches.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use peer_common::{BYTES, DEPTH, Peer, in_vain, is_of, run, unexpected};
use rdma_io::cq::CompletionQueue;
use rdma_io::device::{Context, devices};
use rdma_io::mr::{AccessFlags, OwnedMemoryRegion};
use rdma_io::qp::{QpInitAttr, QueuePair};
use rdma_io::wc::WorkCompletion;
use rdma_io::wr::{RecvWr, SendFlags, SendWr, Sge, WrOpcode};
use rdma_io_sys::ibverbs::{
    IBV_MTU_1024, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU,
    IBV_QP_RQ_PSN, IBV_QP_STATE, IBV_QPS_RTR, ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr,
};

/// The port of a device of soft-RoCE.
const PORT: u8 = 1;
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE);

struct RdmaIo {
    qp: QueuePair,
    cq: Arc<CompletionQueue>,
    mr: OwnedMemoryRegion,
}

impl RdmaIo {
    fn sge(&self, at: usize) -> Sge {
        Sge::new(self.mr.addr() + at as u64, BYTES as u32, self.mr.lkey())
    }
}

/// The context of the device with this address, the GID, and its index.
fn device(address: Ipv4Addr) -> Result<(Arc<Context>, ibv_gid, u8)> {
    for device in devices()? {
        let context = device.open()?;
        for index in 0..context.query_port(PORT)?.gid_tbl_len {
            // An empty entry is an error.
            let Ok(gid) = context.query_gid(PORT, index) else { continue };
            // SAFETY: both forms of a GID are 16 bytes without a meaning of their own.
            if is_of(unsafe { gid.raw }, address) {
                return Ok((Arc::new(context), gid, u8::try_from(index)?));
            }
        }
    }
    None.with_context(|| format!("no device has the address {address}"))
}

/// Connects a QP to itself. `QueuePair::to_rtr` has no choice of the GID.
fn connect(qp: &QueuePair, gid: ibv_gid, index: u8) -> Result<()> {
    qp.to_init(PORT, 0, ACCESS.bits())?;
    let grh = ibv_global_route { dgid: gid, sgid_index: index, hop_limit: 64, ..Default::default() };
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_RTR,
        path_mtu: IBV_MTU_1024,
        dest_qp_num: qp.qp_num(),
        rq_psn: 1,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 12,
        ah_attr: ibv_ah_attr { grh, is_global: 1, port_num: PORT, ..Default::default() },
        ..Default::default()
    };
    let mask = IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;
    qp.modify(&mut attr, mask)?;
    Ok(qp.to_rts(1)?)
}

impl Peer for RdmaIo {
    fn open(address: Ipv4Addr, _: u32) -> Result<Self> {
        let (context, gid, index) = device(address)?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(2 * DEPTH as i32)?;
        let mr = pd.reg_mr_owned(vec![0; 2 * BYTES], ACCESS)?;
        let attr = QpInitAttr { max_send_wr: DEPTH, max_recv_wr: DEPTH, sq_sig_all: false, ..QpInitAttr::default() };
        let qp = pd.create_qp(&cq, &cq, &attr)?;
        connect(&qp, gid, index)?;
        Ok(RdmaIo { qp, cq, mr })
    }

    #[inline(always)]
    fn post_write(&mut self, number: u64) -> Result<()> {
        let write = SendWr::new(number, WrOpcode::RdmaWrite).flags(SendFlags::SIGNALED).sg(self.sge(0));
        Ok(self.qp.post_send(&mut write.rdma(self.mr.addr() + BYTES as u64, self.mr.rkey()))?)
    }

    #[inline(always)]
    fn post_send(&mut self, number: u64) -> Result<()> {
        let mut send = SendWr::new(number, WrOpcode::Send).flags(SendFlags::SIGNALED).sg(self.sge(0));
        Ok(self.qp.post_send(&mut send)?)
    }

    #[inline(always)]
    fn post_recv(&mut self, number: u64) -> Result<()> {
        Ok(self.qp.post_recv(&mut RecvWr::new(number).sg(self.sge(BYTES)))?)
    }

    #[inline(always)]
    fn poll_one(&mut self) -> Result<u64> {
        let mut completions = [WorkCompletion::default()];
        if self.cq.poll(&mut completions)? == 0 {
            return Err(in_vain());
        }
        let [completion] = completions;
        if completion.is_success() {
            Ok(completion.wr_id())
        } else {
            Err(unexpected(completion.status_raw(), completion.wr_id()))
        }
    }
}

fn main() -> Result<()> {
    peer_common::main(run::<RdmaIo>)
}
