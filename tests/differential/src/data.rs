//! Steps of the data path: work requests on the QP of an id, completions, memory.

use std::cell::Cell;
use std::rc::Rc;

use cmid_proto::datapath::{
    Access, Attaching, Block, Caps, CreateError, DataPath, Memory, Pool, QpState, Remote, SendOp, SendWr, Sge, SrqCaps,
    prelude::*,
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
        own: &Published,
    ) -> Result<Self, CreateError> {
        let id = to.id();
        let pd = device.alloc_pd(id)?;
        let (send_cq, recv_cq) = (device.create_cq(id, DEPTH)?, device.create_cq(id, DEPTH)?);
        let caps = Caps { max_send_wr: DEPTH, max_recv_wr: DEPTH, ..Caps::default() };
        let srq = if shares_receives { Some(pd.create_srq(SrqCaps { max_wr: DEPTH, max_sge: 1 })?) } else { None };
        let qp = match &srq {
            Some(srq) => device.create_qp_with_srq(to, &pd, &send_cq, &recv_cq, srq, caps)?,
            None => device.create_qp(to, &pd, &send_cq, &recv_cq, caps)?,
        };
        let memory = BufferOf::<D>::from((0..MEMORY).collect()).share();
        let room = vec![0; usize::from(BLOCK) * usize::from(BLOCKS)];
        let pool = pd.pool(room, BLOCK.into(), Access::REMOTE_READ | Access::MW_BIND);
        let pool = pool?;
        let mut data = Data { window: None, qp, srq, send_cq, recv_cq, mr: None, memory, pool, pd };
        data.register(own)?;
        Ok(data)
    }

    fn register(&mut self, own: &Published) -> Result<(), Errno> {
        let mr = self.pd.register(self.memory.clone(), access(true))?;
        own.set(Targets { mr: Some(mr.remote(0)), ..own.get() });
        self.mr = Some(mr);
        Ok(())
    }

    fn reregister(&mut self, write: bool, own: &Published) -> String {
        let Some(mr) = &mut self.mr else { return "no memory".to_owned() };
        let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
        let done = mr.reregister(Change::default().to_access(access(write)), policy);
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
            DataStep::Attach | DataStep::AttachShared | DataStep::Register | DataStep::Detach => Err(Errno::EBUSY),
            DataStep::Deregister => return vec![self.deregister()],
            DataStep::Receive { at, len } => self.receive(wr_id, at, len),
            DataStep::ReceiveAll { at, len, count } => return vec![batch(self.receive_all(wr_id, at, len, count))],
            DataStep::Post(request) => self.post(wr_id, request, peer.get()),
            DataStep::PostAll { request, count } => {
                return vec![batch(self.post_all(wr_id, request, count, peer.get()))];
            }
            DataStep::Reregister { write } => return vec![self.reregister(write, own)],
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
    fn receive(&mut self, wr_id: u64, at: u8, len: u8) -> Result<(), Errno> {
        if self.qp.state()? == QpState::ERR {
            return Err(Errno::ENOTCONN);
        }
        let sge = sge(self.mr.as_ref(), at, len)?;
        match &mut self.srq {
            Some(srq) => srq.post_recv(wr_id, sge)?,
            None => self.qp.post_recv(wr_id, sge)?,
        }
        Ok(())
    }

    fn receive_all(&mut self, wr_id: u64, at: u8, len: u8, count: u8) -> Result<usize, Stopped> {
        if self.qp.state()? == QpState::ERR {
            return Err(Errno::ENOTCONN.into());
        }
        let sge = sge(self.mr.as_ref(), at, len)?;
        let receives = numbers(wr_id, count).map(|wr_id| (wr_id, sge));
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
        Ok(self.qp.post_sends(numbers(wr_id, count).map(|wr_id| SendWr { wr_id, ..request }))?)
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
        let (range, block) = (0..usize::from(request.len), self.block(wr_id)?);
        Ok(self.qp.post_send_blocks(request_of(block.part(range), wr_id, request, peer)?)?)
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
                        let block = parts.map_or_else(String::new, |parts| format!(" {:02x?}", &parts[0].block()[..]));
                        lines.push(format!("{name} {}{block}", text(&completion)));
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

/// The rights of the memory.
fn access(write: bool) -> Access {
    let written = if write { Access::REMOTE_WRITE | Access::REMOTE_ATOMIC } else { Access::empty() };
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::MW_BIND | written
}

fn sge<M: MemoryRegion>(mr: Option<&M>, at: u8, len: u8) -> Result<Sge<'_, M>, Errno> {
    Ok(mr.ok_or(Errno::ENOMEM)?.sge(usize::from(at)..usize::from(at) + usize::from(len)))
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
) -> Result<SendWr<'a, Sge<'a, M>, A>, Errno> {
    request_of(sge(mr, request.at, request.len)?, wr_id, request, peer)
}

/// The request with this local memory.
fn request_of<'a, L, A>(local: L, wr_id: u64, request: Request, peer: Targets) -> Result<SendWr<'a, L, A>, Errno> {
    let Request { operation, to, key, signaled, .. } = request;
    let target = if key == Key::Window { peer.window } else { peer.mr };
    let Remote { addr, rkey } = target.ok_or(Errno::ENOTCONN)?;
    // The low 8 bits of a key are not part of the index of the MR (rxe_mr.c), so no other MR has the wrong key.
    let rkey = if key == Key::Wrong { rkey ^ 0x55 } else { rkey };
    let remote = Remote { addr: addr.wrapping_add(u64::from(to)), rkey };
    let imm = 0x0102_0304;
    let op = match operation {
        Operation::Send => SendOp::Send,
        Operation::SendImm => SendOp::SendImm(imm),
        Operation::Write => SendOp::Write(remote),
        Operation::WriteImm => SendOp::WriteImm(remote, imm),
        Operation::Read => SendOp::Read(remote),
        Operation::CompareSwap => SendOp::CompareSwap { remote, compare: 0x0706_0504_0302_0100, swap: wr_id },
        Operation::FetchAdd => SendOp::FetchAdd { remote, add: wr_id },
    };
    let request = SendWr::new(wr_id, op, local);
    Ok(if signaled { request } else { request.unsignaled() })
}
