//! Steps of the data path: work requests on the QP of an id, completions, memory.

use std::cell::Cell;
use std::rc::Rc;

use cmid_proto::datapath::{
    Access, Attaching, Block, Caps, CreateError, DataPath, Memory, Pool, QpState, Remote, SendFlags, SendOp, SendWr,
    Sge, SrqCaps, prelude::*,
};
use cmid_proto::memory::{Change, Fallback, Policy};
use cmid_proto::{Errno, ErrorWith};

use crate::data_outcome::{Stopped, batch, text};
use crate::data_step::{DataStep, Key, MEMORY, Operation, Request};

/// The maximum number of work requests in each queue of a QP.
const DEPTH: u32 = 8;

/// What the peer needs to access the memory of a side. Both sides of a run are in the same process.
pub(crate) type Published = Rc<Cell<Targets>>;

/// The memory that a side has published.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Targets {
    mr: Option<Remote>,
    window: Option<Remote>,
}

/// The data path of an id, dropped in this order.
pub(crate) struct Data<D: DataPath> {
    window: Option<D::Mw>,
    qp: D::Qp,
    srq: Option<D::Srq>,
    send_cq: D::Cq,
    recv_cq: D::Cq,
    mr: Option<D::Mr>,
    /// Of the first registration, from then on.
    memory: <BufferOf<D> as Memory>::Shared,
    pool: Pool<D::Piece>,
    pd: D::Pd,
}

type BufferOf<D> = <<D as DataPath>::Mr as MemoryRegion>::Buffer;

/// The length of a block, and the number of blocks of a side.
const BLOCK: u8 = 16;
const BLOCKS: u8 = 4;

impl<D: DataPath> Data<D> {
    pub(crate) fn attach(
        device: &mut D,
        to: Attaching<'_>,
        shares_receives: bool,
        inline: u8,
        own: &Published,
    ) -> Result<Self, CreateError> {
        let id = to.id();
        let pd = device.alloc_pd(id)?;
        let (send_cq, recv_cq) = (device.create_cq(id, DEPTH)?, device.create_cq(id, DEPTH)?);
        let (max_send_wr, max_recv_wr, max_inline) = (DEPTH, DEPTH, inline.into());
        let caps = Caps { max_send_wr, max_recv_wr, max_send_sge: 2, max_recv_sge: 2, max_inline };
        let srq = if shares_receives { Some(pd.create_srq(SrqCaps { max_wr: DEPTH, max_sge: 2 })?) } else { None };
        let qp = match &srq {
            Some(srq) => device.create_qp_with_srq(to, &pd, &send_cq, &recv_cq, srq, caps)?,
            None => device.create_qp(to, &pd, &send_cq, &recv_cq, caps)?,
        };
        let memory = BufferOf::<D>::from(in_a_page(|| (0..MEMORY).collect())).share();
        let room = in_a_page(|| vec![0; usize::from(BLOCK) * usize::from(BLOCKS)]);
        let pool = pd.pool(room, BLOCK.into(), Access::REMOTE_READ | Access::MW_BIND);
        let pool = pool?;
        let mut data = Data { window: None, qp, srq, send_cq, recv_cq, mr: None, memory, pool, pd };
        data.register(own)?;
        Ok(data)
    }

    fn register(&mut self, own: &Published) -> Result<(), Errno> {
        let mr = self.pd.register(self.memory.clone(), access(true, true))?;
        own.set(Targets { mr: Some(mr.remote(0)), ..own.get() });
        self.mr = Some(mr);
        Ok(())
    }

    fn reregister(&mut self, read: bool, write: bool, own: &Published) -> String {
        let Some(mr) = &mut self.mr else { return "no memory".to_owned() };
        let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
        let done = mr.reregister(Change::default().to_access(access(read, write)), policy);
        own.set(Targets { mr: Some(mr.remote(0)), ..own.get() });
        done.result.map_or_else(|error| error.to_string(), |way| format!("{way:?}"))
    }

    fn alloc_window(&mut self) -> Result<(), Errno> {
        if self.window.is_some() {
            return Err(Errno::EBUSY);
        }
        self.window = Some(self.pd.alloc_mw()?);
        Ok(())
    }

    fn dealloc_window(&mut self) -> Result<(), Errno> {
        let window = self.window.take().ok_or(Errno::ENOENT)?;
        window.dealloc().map(drop).map_err(|failed| {
            self.window = Some(failed.given);
            failed.error
        })
    }

    fn bind(&mut self, wr_id: u64, at: u8, len: u8, write: bool, own: &Published) -> Result<(), Errno> {
        let (window, mr) = (self.window.as_mut().ok_or(Errno::ENOENT)?, self.mr.as_ref().ok_or(Errno::ENOMEM)?);
        let rights = Access::REMOTE_READ | if write { Access::REMOTE_WRITE } else { Access::empty() };
        self.qp.post_bind(wr_id, window, mr, usize::from(at)..usize::from(at) + usize::from(len), rights)?;
        let remote = Remote { addr: mr.addr() + u64::from(at), rkey: window.rkey() };
        own.set(Targets { window: Some(remote), ..own.get() });
        Ok(())
    }

    /// Performs a step, with `wr_id` for a work request. Returns what to record: one line each.
    pub(crate) fn perform(&mut self, wr_id: u64, step: DataStep, own: &Published, peer: &Published) -> Vec<String> {
        let result = match step {
            DataStep::Register if self.mr.is_none() => self.register(own),
            DataStep::Attach { .. } | DataStep::Register | DataStep::Detach => Err(Errno::EBUSY),
            DataStep::Deregister => return vec![self.deregister()],
            DataStep::Receive { at, len, split } => self.receive(wr_id, at, len, split),
            DataStep::ReceiveAll { at, len, count } => return vec![batch(self.receive_all(wr_id, at, len, count))],
            DataStep::Post(request) => self.post(wr_id, request, peer.get()),
            DataStep::PostAll { request, count } => {
                return vec![batch(self.post_all(wr_id, request, count, peer.get()))];
            }
            DataStep::Reregister { read, write } => return vec![self.reregister(read, write, own)],
            DataStep::AllocWindow => self.alloc_window(),
            DataStep::DeallocWindow => self.dealloc_window(),
            DataStep::Bind { at, len, write } => self.bind(wr_id, at, len, write, own),
            DataStep::Invalidate => match &mut self.window {
                Some(window) => self.qp.post_invalidate(wr_id, window).map_err(Errno::from),
                None => Err(Errno::ENOENT),
            },
            DataStep::ReceiveBlock => self.receive_block(wr_id),
            DataStep::PostBlock(request) => self.post_block(wr_id, request, peer.get()),
            DataStep::Resize { depth } => self.send_cq.resize(depth.into()).map_err(Errno::from),
            DataStep::Share => return vec![self.share()],
            DataStep::BindBlock { write } => self.bind_block(wr_id, write, own),
            DataStep::TakeBlock => return vec![self.take_block()],
            DataStep::Arm { solicited } => [&self.send_cq, &self.recv_cq]
                .into_iter()
                .try_for_each(|cq| if solicited { cq.arm_solicited() } else { cq.arm() }),
            DataStep::TakeNotifications => {
                let taken = [&self.send_cq, &self.recv_cq].map(CompletionQueue::take_notifications);
                let text =
                    |taken: Result<u32, Errno>| taken.map_or_else(|errno| errno.to_string(), |taken| taken.to_string());
                return vec![format!("{} and {} notifications", text(taken[0]), text(taken[1]))];
            }
            DataStep::Poll => return self.poll(),
            DataStep::Look => return vec![self.look()],
        };
        vec![result.map_or_else(|errno| errno.to_string(), |()| "ok".to_owned())]
    }

    fn deregister(&mut self) -> String {
        let Some(mr) = self.mr.take() else { return "no memory".to_owned() };
        match mr.deregister() {
            Ok(_) => "ok".to_owned(),
            Err(ErrorWith { given: mr, error }) => {
                self.mr = Some(mr);
                error.to_string()
            }
        }
    }

    /// Posts no receive in the error state, which soft-RoCE may never flush (docs/data-path.md).
    fn receive(&mut self, wr_id: u64, at: u8, len: u8, split: bool) -> Result<(), Errno> {
        if self.qp.state()? == QpState::ERR {
            return Err(Errno::ENOTCONN);
        }
        let sges = sges(self.mr.as_ref(), at, len, split)?;
        match &mut self.srq {
            Some(srq) => srq.post_recv(wr_id, sges)?,
            None => self.qp.post_recv(wr_id, sges)?,
        }
        Ok(())
    }

    fn receive_all(&mut self, wr_id: u64, at: u8, len: u8, count: u8) -> Result<usize, Stopped> {
        if self.qp.state()? == QpState::ERR {
            return Err(Errno::ENOTCONN.into());
        }
        let sges = sges(self.mr.as_ref(), at, len, false)?;
        let receives = numbers(wr_id, count).map(|wr_id| (wr_id, sges.clone()));
        match &mut self.srq {
            Some(srq) => Ok(srq.post_recvs(receives)?),
            None => Ok(self.qp.post_recvs(receives)?),
        }
    }

    fn post(&mut self, wr_id: u64, request: Request, peer: Targets) -> Result<(), Errno> {
        let request = send_wr(self.mr.as_ref(), wr_id, request, peer)?;
        Ok(self.qp.post_send(request)?)
    }

    fn post_all(&mut self, wr_id: u64, request: Request, count: u8, peer: Targets) -> Result<usize, Stopped> {
        let request = send_wr(self.mr.as_ref(), wr_id, request, peer)?;
        Ok(self.qp.post_sends(numbers(wr_id, count).map(|wr_id| SendWr { wr_id, ..request.clone() }))?)
    }

    fn block(&self, fill: u64) -> Result<Block<D::Piece>, Errno> {
        let mut block = self.pool.take().ok_or(Errno::ENOMEM)?;
        block.fill(fill as u8);
        Ok(block)
    }

    fn receive_block(&mut self, wr_id: u64) -> Result<(), Errno> {
        if self.qp.state()? == QpState::ERR {
            return Err(Errno::ENOTCONN);
        }
        let block = self.block(wr_id)?;
        match &mut self.srq {
            Some(srq) => srq.post_recv_blocks(wr_id, block)?,
            None => self.qp.post_recv_blocks(wr_id, block)?,
        }
        Ok(())
    }

    fn post_block(&mut self, wr_id: u64, request: Request, peer: Targets) -> Result<(), Errno> {
        let (len, block) = (usize::from(request.len), self.block(wr_id)?);
        let parts: Vec<_> = if request.split {
            vec![block.part(0..len / 2), self.block(wr_id + 1)?.part(0..len - len / 2)]
        } else {
            vec![block.part(0..len)]
        };
        Ok(self.qp.post_send_blocks(request_of(parts, wr_id, request, peer)?)?)
    }

    /// The second registration of the memory has other keys, and its end changes nothing.
    fn share(&mut self) -> String {
        match self.pd.register(self.memory.clone(), Access::LOCAL_WRITE) {
            Ok(mut mr) => {
                let is_same = self.mr.as_ref().map(|own| (own.addr() == mr.addr(), own.lkey() == mr.lkey()));
                let slice = mr.slice().map(|slice| slice.len());
                let ended = mr.deregister().map(|_| ()).map_err(|error| error.to_string());
                format!("{is_same:?} {slice:?} {ended:?}")
            }
            Err(error) => error.to_string(),
        }
    }

    fn bind_block(&mut self, wr_id: u64, write: bool, own: &Published) -> Result<(), Errno> {
        let block = self.block(wr_id)?;
        let window = self.window.as_mut().ok_or(Errno::ENOENT)?;
        let rights = Access::REMOTE_READ | if write { Access::REMOTE_WRITE } else { Access::empty() };
        let addr = block.remote(0).addr;
        self.qp.post_bind_block(wr_id, window, block, rights)?;
        own.set(Targets { window: Some(Remote { addr, rkey: window.rkey() }), ..own.get() });
        Ok(())
    }

    fn take_block(&mut self) -> String {
        let part = self.window.as_mut().and_then(MemoryWindow::reclaim);
        part.map_or_else(|| "no block".to_owned(), |part| format!("{:02x?}", &part[..]))
    }

    /// Polls both CQs empty. The order between queues is not defined, so each has its own CQ.
    fn poll(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, cq) in [("send", &mut self.send_cq), ("recv", &mut self.recv_cq)] {
            // Each work request has at most one completion.
            for _ in 0..=2 * DEPTH {
                match cq.poll_one() {
                    Ok(Some(completion)) => {
                        let of_srq = self.srq.as_mut().filter(|_| completion.opcode.is_recv());
                        let parts = match of_srq {
                            Some(srq) => srq.reclaim(&completion),
                            None => self.qp.reclaim(&completion),
                        };
                        let parts = parts.iter().flat_map(|parts| parts.iter());
                        let blocks: String = parts.map(|part| format!(" {:02x?}", &part.block()[..])).collect();
                        lines.push(format!("{name} {}{blocks}", text(&completion)));
                    }
                    Ok(None) => break,
                    Err(errno) => {
                        lines.push(format!("{name} {errno}"));
                        break;
                    }
                }
            }
        }
        lines
    }

    fn look(&self) -> String {
        let state = self.qp.state().map_or_else(|errno| errno.to_string(), |state| state.to_string());
        let mut bytes = [0; MEMORY as usize];
        let memory = self.mr.as_ref().map(|mr| mr.read(0, &mut bytes));
        format!("{state} {memory:?} {bytes:02x?} {} blocks", self.pool.available())
    }
}

/// Memory that does not cross the end of a page, which soft-iWARP does not read rightly (hazard P95).
fn in_a_page(make: impl Fn() -> Vec<u8>) -> Vec<u8> {
    const PAGE: usize = 4096;
    let (mut memory, mut others) = (make(), Vec::new());
    while memory.as_ptr().addr() % PAGE + memory.len() > PAGE {
        others.push(std::mem::replace(&mut memory, make()));
    }
    memory
}

/// The rights of the memory.
fn access(read: bool, write: bool) -> Access {
    let shown = if read { Access::REMOTE_READ } else { Access::empty() };
    let written = if write { Access::REMOTE_WRITE | Access::REMOTE_ATOMIC } else { Access::empty() };
    Access::LOCAL_WRITE | Access::MW_BIND | shown | written
}

fn sges<M: MemoryRegion>(mr: Option<&M>, at: u8, len: u8, split: bool) -> Result<Vec<Sge<'_, M>>, Errno> {
    let (mr, at, len) = (mr.ok_or(Errno::ENOMEM)?, usize::from(at), usize::from(len));
    let (half, end) = (at + len / 2, at + len);
    Ok(if split { vec![mr.sge(half..end), mr.sge(at..half)] } else { vec![mr.sge(at..end)] })
}

/// The numbers of the work requests of a batch. No step has the second and later ones.
fn numbers(wr_id: u64, count: u8) -> impl Iterator<Item = u64> {
    (0..u64::from(count)).map(move |number| wr_id + 1000 * number)
}

fn send_wr<'a, M: MemoryRegion, A>(
    mr: Option<&'a M>,
    wr_id: u64,
    request: Request,
    peer: Targets,
) -> Result<SendWr<'a, Vec<Sge<'a, M>>, A>, Errno> {
    request_of(sges(mr, request.at, request.len, request.split)?, wr_id, request, peer)
}

/// The request with this local memory.
fn request_of<'a, L, A>(local: L, wr_id: u64, request: Request, peer: Targets) -> Result<SendWr<'a, L, A>, Errno> {
    let Request { operation, to, key, .. } = request;
    let target = if key == Key::Window { peer.window } else { peer.mr };
    let Remote { addr, rkey } = target.ok_or(Errno::ENOTCONN)?;
    // The low 8 bits of a key are not part of the index of the MR (rxe_mr.c), so no other MR has the wrong key.
    let rkey = if key == Key::Wrong { rkey ^ 0x55 } else { rkey };
    let remote = Remote { addr: addr.wrapping_add(u64::from(to)), rkey };
    let imm = 0x0102_0304;
    let op = match operation {
        Operation::Send => SendOp::Send,
        Operation::SendImm => SendOp::SendImm(imm),
        Operation::SendInvalidate => SendOp::SendInvalidate(rkey),
        Operation::Write => SendOp::Write(remote),
        Operation::WriteImm => SendOp::WriteImm(remote, imm),
        Operation::Read => SendOp::Read(remote),
        Operation::CompareSwap => SendOp::CompareSwap { remote, compare: 0x0706_0504_0302_0100, swap: wr_id },
        Operation::FetchAdd => SendOp::FetchAdd { remote, add: wr_id },
    };
    let flags = [
        (request.signaled, SendFlags::SIGNALED),
        (request.fenced, SendFlags::FENCE),
        (request.solicited, SendFlags::SOLICITED),
    ];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
    Ok(SendWr { wr_id, op, sges: local, flags })
}
