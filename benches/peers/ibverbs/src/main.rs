//! The jobs on the crate ibverbs 0.9.2. It offers sends and receives, one at a time.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use ibverbs::{CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, ibv_access_flags, ibv_qp_type, ibv_wc};
use peer_common::{BYTES, DEPTH, Peer, in_vain, is_of, not_offered, run, unexpected};

struct Ibverbs {
    qp: QueuePair<'static>,
    cq: &'static CompletionQueue<'static>,
    mr: MemoryRegion<u8>,
}

impl Peer for Ibverbs {
    fn open(address: Ipv4Addr, _: u32) -> Result<Self> {
        for device in ibverbs::devices()?.iter() {
            // What others borrow lasts as long as the program.
            let context = &*Box::leak(Box::new(device.open()?));
            let gid = context.gid_table().iter().find(|entry| is_of(bytes(entry.gid), address));
            let Some(gid) = gid.map(|entry| entry.gid_index) else { continue };
            let pd: &'static ProtectionDomain<'_> = Box::leak(Box::new(context.alloc_pd()?));
            let cq: &'static CompletionQueue<'_> = Box::leak(Box::new(context.create_cq(2 * DEPTH as i32, 0)?));
            let mr = pd.allocate(2 * BYTES)?;
            let mut builder = pd.create_qp(cq, cq, ibv_qp_type::IBV_QPT_RC);
            builder
                .set_gid_index(gid)
                .set_max_send_wr(DEPTH)
                .set_max_recv_wr(DEPTH)
                .set_access(ibv_access_flags::IBV_ACCESS_LOCAL_WRITE);
            let prepared = builder.build()?;
            let itself = prepared.endpoint();
            return Ok(Ibverbs { qp: prepared.handshake(itself)?, cq, mr });
        }
        None.with_context(|| format!("no device has the address {address}"))
    }

    fn post_write(&mut self, _: u64) -> Result<()> {
        not_offered("a write")
    }

    #[inline(always)]
    fn post_send(&mut self, number: u64) -> Result<()> {
        // SAFETY: the MR lives as long as the QP.
        Ok(unsafe { self.qp.post_send(&mut self.mr, 0..BYTES, number) }?)
    }

    #[inline(always)]
    fn post_recv(&mut self, number: u64) -> Result<()> {
        // SAFETY: the MR lives as long as the QP, and nothing reads its memory.
        Ok(unsafe { self.qp.post_receive(&mut self.mr, BYTES..2 * BYTES, number) }?)
    }

    #[inline(always)]
    fn poll_one(&mut self) -> Result<u64> {
        let mut completions = [ibv_wc::default()];
        let [completion] = self.cq.poll(&mut completions)? else { return Err(in_vain()) };
        match completion.error() {
            None => Ok(completion.wr_id()),
            Some((status, _)) => Err(unexpected(status as u32, completion.wr_id())),
        }
    }
}

fn bytes(gid: ibverbs::Gid) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&gid.subnet_prefix().to_be_bytes());
    bytes[8..].copy_from_slice(&gid.interface_id().to_be_bytes());
    bytes
}

fn main() -> Result<()> {
    peer_common::main(run::<Ibverbs>)
}
