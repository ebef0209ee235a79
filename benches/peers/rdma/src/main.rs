//! The jobs on the crate rdma 0.3.0. It can chain work requests; of a write it cannot set the remote address.

use std::mem::MaybeUninit;
use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use peer_common::{AT_ONCE, BYTES, DEPTH, Peer, in_vain, is_of, job, not_offered, run, unexpected};
use rdma::ah::{AddressHandle, GlobalRoute};
use rdma::cq::CompletionQueue;
use rdma::ctx::Context;
use rdma::device::{DeviceList, GidEntry, Mtu, PortAttr};
use rdma::mr::{AccessFlags, MemoryRegion};
use rdma::pd::ProtectionDomain;
use rdma::qp::{ModifyOptions, QueuePair, QueuePairCapacity, QueuePairState, QueuePairType};
use rdma::wc::WorkCompletion;
use rdma::wr::{Opcode, RecvRequest, SendFlags, SendRequest, Sge};

/// The port of a device of soft-RoCE.
const PORT: u8 = 1;

struct Rdma {
    qp: QueuePair,
    cq: CompletionQueue,
    mr: MemoryRegion,
}

impl Rdma {
    fn sge(&self, at: usize) -> Sge {
        Sge { addr: self.mr.addr_u64() + at as u64, length: BYTES as u32, lkey: self.mr.lkey() }
    }
}

/// The context of the device with this address, and the index of its GID.
fn device(address: Ipv4Addr) -> Result<(Context, u32)> {
    for device in DeviceList::available()?.as_slice() {
        let context = device.open()?;
        for index in 0..PortAttr::query(&context, PORT)?.gid_table_len() {
            // An empty entry is an error.
            let Ok(entry) = GidEntry::query(&context, PORT.into(), index) else { continue };
            if is_of(*entry.gid().as_bytes(), address) {
                return Ok((context, index));
            }
        }
    }
    None.with_context(|| format!("no device has the address {address}"))
}

fn connect(qp: &QueuePair, context: &Context, gid: u32) -> Result<()> {
    let mut init = ModifyOptions::default();
    init.qp_state(QueuePairState::Initialize).pkey_index(0).port_num(PORT).qp_access_flags(AccessFlags::LOCAL_WRITE);
    qp.modify(init)?;
    let route = GlobalRoute {
        dest_gid: GidEntry::query(context, PORT.into(), gid)?.gid(),
        flow_label: 0,
        sgid_index: u8::try_from(gid)?,
        hop_limit: 64,
        traffic_class: 0,
    };
    let mut to = AddressHandle::options();
    to.port_num(PORT).global_route_header(route);
    let mut receive = ModifyOptions::default();
    receive.qp_state(QueuePairState::ReadyToReceive).path_mtu(Mtu::Mtu1024).dest_qp_num(qp.qp_num()).rq_psn(1);
    receive.max_dest_rd_atomic(1).min_rnr_timer(12).ah_attr(to);
    qp.modify(receive)?;
    let mut send = ModifyOptions::default();
    send.qp_state(QueuePairState::ReadyToSend).timeout(14).retry_cnt(7).rnr_retry(7).sq_psn(1).max_rd_atomic(1);
    Ok(qp.modify(send)?)
}

impl Peer for Rdma {
    fn open(address: Ipv4Addr, _: u32) -> Result<Self> {
        let (context, gid) = device(address)?;
        let pd = ProtectionDomain::alloc(&context)?;
        let mut options = CompletionQueue::options();
        options.cqe(2 * DEPTH as usize);
        let cq = CompletionQueue::create(&context, options)?;
        let memory: &'static mut [u8] = Box::leak(vec![0; 2 * BYTES].into_boxed_slice());
        // SAFETY: the memory is never freed.
        let mr =
            unsafe { MemoryRegion::register(&pd, memory.as_mut_ptr(), memory.len(), AccessFlags::LOCAL_WRITE, ()) }?;
        let mut options = QueuePair::options();
        options.pd(&pd).send_cq(&cq).recv_cq(&cq).qp_type(QueuePairType::RC).cap(QueuePairCapacity {
            max_send_wr: DEPTH,
            max_recv_wr: DEPTH,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        });
        let qp = QueuePair::create(&context, options)?;
        connect(&qp, &context, gid)?;
        Ok(Rdma { qp, cq, mr })
    }

    fn post_write(&mut self, _: u64) -> Result<()> {
        not_offered("a write")
    }

    #[inline(always)]
    fn post_send(&mut self, number: u64) -> Result<()> {
        let sges = [self.sge(0)];
        let mut request = SendRequest::zeroed();
        request.id(number).sg_list(&sges).opcode(Opcode::Send).send_flags(SendFlags::SIGNALED);
        // SAFETY: the request and its SGEs live during the call, the memory for ever.
        Ok(unsafe { self.qp.post_send(&request) }?)
    }

    #[inline(always)]
    fn post_recv(&mut self, number: u64) -> Result<()> {
        let sges = [self.sge(BYTES)];
        let mut request = RecvRequest::zeroed();
        request.id(number).sg_list(&sges);
        // SAFETY: as in `post_send`; nothing reads the memory.
        Ok(unsafe { self.qp.post_recv(&request) }?)
    }

    #[inline(always)]
    fn poll_one(&mut self) -> Result<u64> {
        let mut completions = [MaybeUninit::uninit()];
        let [completion] = self.cq.poll(&mut completions)? else { return Err(in_vain()) };
        match completion.status() {
            0 => Ok(completion.wr_id()),
            status => Err(unexpected(status, completion.wr_id())),
        }
    }

    fn post_writes(&mut self) -> Result<()> {
        not_offered("a write")
    }

    fn post_sends(&mut self) -> Result<()> {
        let sges = [self.sge(0)];
        let mut requests = [const { MaybeUninit::<SendRequest>::uninit() }; AT_ONCE as usize];
        let first = requests.as_mut_ptr().cast::<SendRequest>();
        for (number, request) in requests.iter_mut().enumerate() {
            let request = request.write(SendRequest::zeroed());
            request.id(number as u64).sg_list(&sges).opcode(Opcode::Send).send_flags(SendFlags::SIGNALED);
            if number + 1 < AT_ONCE as usize {
                request.next(first.wrapping_add(number + 1));
            }
        }
        // SAFETY: all requests are written; they and their SGEs live during the call, the memory for ever.
        Ok(unsafe { self.qp.post_send(&*first) }?)
    }

    fn post_recvs(&mut self) -> Result<()> {
        let sges = [self.sge(BYTES)];
        let mut requests = [const { MaybeUninit::<RecvRequest>::uninit() }; AT_ONCE as usize];
        let first = requests.as_mut_ptr().cast::<RecvRequest>();
        for (number, request) in requests.iter_mut().enumerate() {
            let request = request.write(RecvRequest::zeroed());
            request.id(number as u64).sg_list(&sges);
            if number + 1 < AT_ONCE as usize {
                request.next(first.wrapping_add(number + 1));
            }
        }
        // SAFETY: as in `post_sends`; nothing reads the memory.
        Ok(unsafe { self.qp.post_recv(&*first) }?)
    }

    fn poll_all(&mut self, count: usize) -> Result<()> {
        let mut completions = [const { MaybeUninit::<WorkCompletion>::uninit() }; 2 * AT_ONCE as usize];
        let polled = self.cq.poll(&mut completions[..count])?;
        if polled.len() != count {
            return Err(in_vain());
        }
        for completion in polled {
            if completion.status() != 0 || completion.wr_id() >= AT_ONCE {
                return Err(unexpected(completion.status(), completion.wr_id()));
            }
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let (address, jobs) = peer_common::arguments()?;
    jobs.iter().try_for_each(|text| {
        let (name, rounds) = job(text)?;
        run::<Rdma>(address, name, rounds).with_context(|| text.clone())
    })
}
