//! Steps of the data path: work requests on the QP of an id, completions, memory.

use std::cell::Cell;
use std::rc::Rc;

use cmid_proto::datapath::{Access, Caps, Completion, DataPath, QpState, Remote, SendOp, SendWr, prelude::*};
use cmid_proto::{Attaching, Errno};
use serde::{Deserialize, Serialize};

/// The length of the MR of a side, in bytes.
pub const MEMORY: u8 = 64;

/// The maximum number of work requests in each queue of a QP.
const DEPTH: u32 = 8;

/// The kinds of requests of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are SendOp's")]
pub enum Operation {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
}

/// A request of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// What it does.
    pub operation: Operation,
    /// The first byte of its local memory.
    pub at: u8,
    /// The length of its local memory.
    pub len: u8,
    /// The first byte at the peer.
    pub to: u8,
    /// Whether its key is that of the peer's MR. It is stale if the peer has deregistered that MR.
    pub right_key: bool,
    /// Whether it is signaled.
    pub signaled: bool,
}

/// A step on the data path of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DataStep {
    /// Creates the QP and its CQs, and registers its memory.
    Attach,
    /// Registers the memory again after [`DataStep::Deregister`].
    Register,
    /// Deregisters the memory, which is refused while a work request is in flight.
    Deregister,
    /// Posts a receive.
    Receive {
        /// The first byte.
        at: u8,
        /// The length.
        len: u8,
    },
    /// Posts a request to the send queue.
    Post(Request),
    /// Polls both CQs empty.
    Poll,
    /// Records the state of the QP and the contents of the memory.
    Look,
}

/// What the peer needs to access the memory of a side. Both sides of a run are in the same process.
pub(crate) type Published = Rc<Cell<Option<Remote>>>;

/// The data path of an id, dropped in this order.
pub(crate) struct Data<D: DataPath> {
    qp: D::Qp,
    send_cq: D::Cq,
    recv_cq: D::Cq,
    mr: Option<D::Mr>,
    pd: D::Pd,
}

impl<D: DataPath> Data<D> {
    pub(crate) fn attach(device: &mut D, to: Attaching<'_>, own: &Published) -> Result<Self, Errno> {
        let id = to.id();
        let pd = device.alloc_pd(id)?;
        let (send_cq, recv_cq) = (device.create_cq(id, DEPTH)?, device.create_cq(id, DEPTH)?);
        let caps = Caps { max_send_wr: DEPTH, max_recv_wr: DEPTH, ..Caps::default() };
        let qp = device.create_qp(to, &pd, &send_cq, &recv_cq, caps)?;
        let mut data = Data { qp, send_cq, recv_cq, mr: None, pd };
        data.register(own)?;
        Ok(data)
    }

    fn register(&mut self, own: &Published) -> Result<(), Errno> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let bytes: Vec<u8> = (0..MEMORY).collect();
        let mr = self.pd.register(bytes, access).map_err(|(_, error)| error.errno())?;
        own.set(Some(mr.remote(0)));
        self.mr = Some(mr);
        Ok(())
    }

    /// Performs a step, with `wr_id` for a work request. Returns what to record: one line each.
    pub(crate) fn perform(&mut self, wr_id: u64, step: DataStep, own: &Published, peer: &Published) -> Vec<String> {
        let result = match step {
            DataStep::Register if self.mr.is_none() => self.register(own),
            DataStep::Attach | DataStep::Register => Err(Errno::EBUSY),
            DataStep::Deregister => return vec![self.deregister()],
            DataStep::Receive { at, len } => self.receive(wr_id, at, len),
            DataStep::Post(request) => self.post(wr_id, request, peer.get()),
            DataStep::Poll => return self.poll(),
            DataStep::Look => return vec![self.look()],
        };
        vec![result.map_or_else(|errno| errno.to_string(), |()| "ok".to_owned())]
    }

    fn deregister(&mut self) -> String {
        let Some(mr) = self.mr.take() else { return "no memory".to_owned() };
        match mr.deregister() {
            Ok(_) => "ok".to_owned(),
            Err((mr, error)) => {
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
        let mr = self.mr.as_ref().ok_or(Errno::ENOMEM)?;
        self.qp.post_recv(wr_id, mr.sge(usize::from(at)..usize::from(at) + usize::from(len)))
    }

    fn post(&mut self, wr_id: u64, request: Request, peer: Option<Remote>) -> Result<(), Errno> {
        let Request { operation, at, len, to, right_key, signaled } = request;
        let mr = self.mr.as_ref().ok_or(Errno::ENOMEM)?;
        let Remote { addr, rkey } = peer.ok_or(Errno::ENOTCONN)?;
        // The low 8 bits of a key are not part of the index of the MR (rxe_mr.c), so no other MR has the wrong key.
        let rkey = if right_key { rkey } else { rkey ^ 0x55 };
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
        let request = SendWr::new(wr_id, op, mr.sge(usize::from(at)..usize::from(at) + usize::from(len)));
        self.qp.post_send(if signaled { request } else { request.unsignaled() })
    }

    /// Polls both CQs empty. The order between queues is not defined, so each has its own CQ.
    fn poll(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, cq) in [("send", &mut self.send_cq), ("recv", &mut self.recv_cq)] {
            // Each work request has at most one completion.
            for _ in 0..=2 * DEPTH {
                match cq.poll_one() {
                    Ok(Some(completion)) => lines.push(format!("{name} {}", text(&completion))),
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
        format!("{state} {memory:?} {bytes:02x?}")
    }
}

/// The fields that ibv_poll_cq(3) defines.
fn text(completion: &Completion) -> String {
    let Completion { wr_id, status, opcode, byte_len, .. } = *completion;
    if !completion.is_success() {
        return format!("{wr_id} {status}");
    }
    let received = if opcode.is_recv() { format!(" {byte_len} bytes, {:?}", completion.imm()) } else { String::new() };
    format!("{wr_id} {status} {opcode:?}{received}")
}
