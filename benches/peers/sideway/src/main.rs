//! The jobs on the crate sideway 0.4.3: by the classic calls, and, with `-extended` after a job's name, by those of
//! ibv_wr_post(3) and ibv_create_cq_ex(3).

mod calls;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use peer_common::{AT_ONCE, BYTES, DEPTH, Peer, in_vain, is_of, run, unexpected};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, GidEntry};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::queue_pair::{
    PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState, SetScatterGatherEntry, WorkRequestFlags,
};

use crate::calls::{Basic, Calls, Extended};

struct Sideway<C: Calls> {
    qp: C::Qp,
    cq: C::Cq,
    mr: Arc<MemoryRegion>,
    addr: u64,
}

/// The context of the device with this address, and the address's GID.
fn device(address: Ipv4Addr) -> Result<(Arc<DeviceContext>, GidEntry)> {
    for device in &DeviceList::new()? {
        let context = device.open()?;
        let gid = context.query_gid_table()?.into_iter();
        let gid = gid.into_iter().find(|entry| is_of(Ipv6Addr::from(entry.gid()).octets(), address));
        if let Some(gid) = gid {
            return Ok((context, gid));
        }
    }
    None.with_context(|| format!("no device has the address {address}"))
}

fn connect(qp: &mut impl QueuePair, gid: &GidEntry) -> Result<()> {
    let port = u8::try_from(gid.port_num())?;
    let mut init = QueuePairAttribute::new();
    init.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(port);
    init.setup_access_flags(AccessFlags::LocalWrite | AccessFlags::RemoteWrite);
    qp.modify(&init)?;
    let mut to = AddressHandleAttribute::new();
    to.setup_port(port).setup_grh_src_gid_index(u8::try_from(gid.gid_index())?);
    to.setup_grh_dest_gid(&gid.gid()).setup_grh_hop_limit(64);
    let mut receive = QueuePairAttribute::new();
    receive.setup_state(QueuePairState::ReadyToReceive).setup_path_mtu(Mtu::Mtu1024);
    receive.setup_dest_qp_num(qp.qp_number()).setup_rq_psn(1).setup_max_dest_read_atomic(1);
    receive.setup_min_rnr_timer(12).setup_address_vector(&to);
    qp.modify(&receive)?;
    let mut send = QueuePairAttribute::new();
    send.setup_state(QueuePairState::ReadyToSend).setup_sq_psn(1).setup_timeout(14);
    send.setup_retry_cnt(7).setup_rnr_retry(7).setup_max_read_atomic(1);
    Ok(qp.modify(&send)?)
}

impl<C: Calls> Peer for Sideway<C> {
    fn open(address: Ipv4Addr, polled: u32) -> Result<Self> {
        let (context, gid) = device(address)?;
        let pd = context.alloc_pd()?;
        let memory: &'static mut [u8] = Box::leak(vec![0; 2 * BYTES].into_boxed_slice());
        let addr = memory.as_mut_ptr();
        // SAFETY: the memory is never freed.
        let mr = unsafe { pd.reg_mr(addr as usize, memory.len(), AccessFlags::LocalWrite | AccessFlags::RemoteWrite) }?;
        let cq = C::cq(&context, 2 * DEPTH, polled)?;
        let mut qp = C::qp(&pd, &cq, DEPTH)?;
        connect(&mut qp, &gid)?;
        Ok(Sideway { qp, cq, mr, addr: addr as u64 })
    }

    #[inline(always)]
    fn post_write(&mut self, number: u64) -> Result<()> {
        let mut guard = self.qp.start_post_send();
        let request = guard.construct_wr(number, WorkRequestFlags::Signaled).setup_write(self.mr.rkey(), self.addr);
        // SAFETY: the memory is never freed.
        unsafe { request.setup_sge(self.mr.lkey(), self.addr, BYTES as u32) };
        Ok(guard.post()?)
    }

    #[inline(always)]
    fn post_send(&mut self, number: u64) -> Result<()> {
        let mut guard = self.qp.start_post_send();
        let request = guard.construct_wr(number, WorkRequestFlags::Signaled).setup_send();
        // SAFETY: the memory is never freed.
        unsafe { request.setup_sge(self.mr.lkey(), self.addr, BYTES as u32) };
        Ok(guard.post()?)
    }

    #[inline(always)]
    fn post_recv(&mut self, number: u64) -> Result<()> {
        let mut guard = self.qp.start_post_recv();
        // SAFETY: the memory is never freed, and nothing reads it.
        unsafe { guard.construct_wr(number).setup_sge(self.mr.lkey(), self.addr + BYTES as u64, BYTES as u32) };
        Ok(guard.post()?)
    }

    #[inline(always)]
    fn poll_one(&mut self) -> Result<u64> {
        let (status, wr_id) = C::first(&self.cq)?.ok_or_else(in_vain)?;
        if status == 0 { Ok(wr_id) } else { Err(unexpected(status, wr_id)) }
    }

    fn post_writes(&mut self) -> Result<()> {
        let (lkey, rkey, addr) = (self.mr.lkey(), self.mr.rkey(), self.addr);
        let mut guard = self.qp.start_post_send();
        for number in 0..AT_ONCE {
            let request = guard.construct_wr(number, WorkRequestFlags::Signaled).setup_write(rkey, addr);
            // SAFETY: the memory is never freed.
            unsafe { request.setup_sge(lkey, addr, BYTES as u32) };
        }
        Ok(guard.post()?)
    }

    fn poll_all(&mut self) -> Result<()> {
        let mut polled = 0;
        C::each(&self.cq, AT_ONCE as usize, |status, wr_id| {
            polled += 1;
            if status == 0 && wr_id < AT_ONCE { Ok(()) } else { Err(unexpected(status, wr_id)) }
        })?;
        if polled == AT_ONCE { Ok(()) } else { Err(in_vain()) }
    }
}

fn main() -> Result<()> {
    peer_common::main(|address, name, rounds| match name.strip_suffix("-extended") {
        Some(name) => run::<Sideway<Extended>>(address, name, rounds),
        None => run::<Sideway<Basic>>(address, name, rounds),
    })
}
