//! The ping-pong on an established connection: handles completions and posts work requests. Independent of the
//! driver.

use std::os::fd::BorrowedFd;

use anyhow::{Context, Result, bail, ensure};
use cmid_proto::datapath::Attaching;
use cmid_proto::datapath::{Access, Caps, Completion, CreateError, PostError, QpParts, SendWr, WcStatus, prelude::*};

use crate::message::{Message, ping_data, text};

/// The maximum number of work requests of each queue; a ping has at most two under way.
const DEPTH: u32 = 16;
/// The access that the peer's reads and writes need.
const REACHED: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

/// The kinds of work requests, as wr_id.
const SEND: u64 = 1;
const RECV: u64 = 2;
const RDMA: u64 = 3;

/// The parameters of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) server: bool,
    pub(crate) count: u64,
    pub(crate) size: usize,
    pub(crate) verbose: bool,
    pub(crate) validate: bool,
}

/// The two halves of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    /// The server reads the client's source.
    Read,
    /// The server writes the client's sink.
    Write,
}

/// The progress of the ping-pong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The ping-pong continues.
    Going,
    /// The client has completed its pings and disconnects next.
    Finished,
}

/// The QP, its memory and the state of the ping-pong.
pub(crate) struct Session<D: DataPath> {
    plan: Plan,
    half: Half,
    pings: u64,
    sending: bool,
    /// A message that waits until the previous send completes, because the device still uses the send buffer.
    unsent: Option<Message>,
    // Dropped in this order: the QP first, the PD last.
    qp: D::Qp,
    cq: D::Cq,
    recv: D::Mr,
    send: D::Mr,
    /// The buffer of the server, or the sink of the client.
    sink: D::Mr,
    /// The source of the client.
    source: D::Mr,
    _pd: D::Pd,
}

impl<D: DataPath> std::fmt::Debug for Session<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("plan", &self.plan).field("pings", &self.pings).finish_non_exhaustive()
    }
}

impl<D: DataPath> Session<D> {
    /// Creates the QP and its resources on the id, and posts a receive.
    pub(crate) fn new(device: &mut D, attaching: Attaching<'_>, plan: Plan) -> Result<Self, CreateError> {
        let caps = Caps { max_send_wr: DEPTH, max_recv_wr: DEPTH, ..Caps::default() };
        let QpParts { qp, cq, pd, .. } = device.qp(attaching).caps(caps).attach()?;
        cq.arm()?;
        let register = |len, access| pd.register(vec![0; len], access);
        let mut session = Session {
            plan,
            half: Half::Read,
            pings: 0,
            sending: false,
            unsent: None,
            recv: register(Message::LEN, Access::LOCAL_WRITE)?,
            send: register(Message::LEN, Access::LOCAL_WRITE)?,
            sink: register(plan.size, REACHED)?,
            source: register(plan.size, REACHED)?,
            qp,
            cq,
            _pd: pd,
        };
        session.receive()?;
        Ok(session)
    }

    pub(crate) fn pings(&self) -> u64 {
        self.pings
    }

    pub(crate) fn cq_fd(&self) -> BorrowedFd<'_> {
        self.cq.fd()
    }

    /// Starts the first ping of a client. Called once the connection is established.
    pub(crate) fn start(&mut self) -> Result<()> {
        if self.plan.server { Ok(()) } else { self.ping() }
    }

    /// Handles all completions.
    pub(crate) fn run(&mut self) -> Result<Progress> {
        self.cq.take_notifications()?;
        // The CQ is armed before it is emptied, so that a completion after the last poll makes the descriptor
        // readable.
        self.cq.arm()?;
        while let Some(done) = self.cq.poll_one()? {
            if self.completed(done)? == Progress::Finished {
                return Ok(Progress::Finished);
            }
        }
        Ok(Progress::Going)
    }

    fn completed(&mut self, done: Completion) -> Result<Progress> {
        // The connection has ended.
        if done.status == WcStatus::WR_FLUSH_ERR {
            return Ok(Progress::Going);
        }
        let (wr_id, status) = (done.wr_id, done.status);
        ensure!(status == WcStatus::SUCCESS, "work request {wr_id} failed: {status}");
        match wr_id {
            SEND => {
                self.sending = false;
                if let Some(message) = self.unsent.take() {
                    self.send(message)?;
                }
            }
            RECV => {
                ensure!(done.byte_len as usize == Message::LEN, "a message of {} bytes", done.byte_len);
                let mut bytes = [0; Message::LEN];
                self.recv.read(0, &mut bytes)?;
                self.receive()?;
                return if self.plan.server { self.received(Message::decode(bytes)) } else { self.go_ahead() };
            }
            RDMA => self.transferred()?,
            other => bail!("a completion of work request {other}, which was never posted"),
        }
        Ok(Progress::Going)
    }

    /// Server: handles the message with the buffer to read or write.
    fn received(&mut self, message: Message) -> Result<Progress> {
        let len = message.len as usize;
        ensure!(
            len <= self.plan.size,
            "the client's pings have {len} bytes, this side has room for {}",
            self.plan.size
        );
        match self.half {
            Half::Read => self.qp.post_send(SendWr::read(RDMA, self.sink.sge(0..len), message.at))?,
            Half::Write => self.qp.post_send(SendWr::write(RDMA, self.sink.sge(0..len), message.at))?,
        }
        Ok(Progress::Going)
    }

    /// Server: handles the end of the read or write, and sends a reply.
    fn transferred(&mut self) -> Result<()> {
        match self.half {
            Half::Read => {
                if self.plan.verbose {
                    crate::say!("server ping data: {}", text(&self.data(&self.sink)?));
                }
                self.half = Half::Write;
            }
            Half::Write => {
                self.pings += 1;
                self.half = Half::Read;
            }
        }
        // The client ignores the contents of the reply.
        self.send(Message { at: self.sink.remote(0), len: 0 })
    }

    /// Client: starts a ping.
    fn ping(&mut self) -> Result<()> {
        let data = ping_data(self.pings, self.plan.size);
        self.source.write(0, &data)?;
        self.half = Half::Read;
        self.send(Message { at: self.source.remote(0), len: self.plan.size as u32 })
    }

    /// Client: handles the reply after the server's read or write.
    fn go_ahead(&mut self) -> Result<Progress> {
        match self.half {
            Half::Read => {
                self.half = Half::Write;
                self.send(Message { at: self.sink.remote(0), len: self.plan.size as u32 })?;
            }
            Half::Write => {
                if self.plan.validate {
                    let data = self.data(&self.sink)?;
                    ensure!(data == ping_data(self.pings, self.plan.size), "ping {} came back changed", self.pings);
                }
                if self.plan.verbose {
                    crate::say!("ping data: {}", text(&self.data(&self.sink)?));
                }
                self.pings += 1;
                if self.pings == self.plan.count {
                    return Ok(Progress::Finished);
                }
                self.ping()?;
            }
        }
        Ok(Progress::Going)
    }

    fn send(&mut self, message: Message) -> Result<()> {
        if self.sending {
            self.unsent = Some(message);
            return Ok(());
        }
        self.send.write(0, &message.encode())?;
        self.qp.post_send(SendWr::send(SEND, self.send.sge(0..Message::LEN))).context("posting a send")?;
        self.sending = true;
        Ok(())
    }

    fn receive(&mut self) -> Result<(), PostError> {
        self.qp.post_recv(RECV, self.recv.sge(0..Message::LEN))
    }

    fn data(&self, mr: &D::Mr) -> Result<Vec<u8>> {
        let mut data = vec![0; self.plan.size];
        mr.read(0, &mut data)?;
        Ok(data)
    }
}
