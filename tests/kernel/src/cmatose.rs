//! The peer of rdma-core's ucmatose, on cmid-blocking: one connection, on which the server sends ten messages and the
//! client then answers with as many. On iWARP, where the connecting side is meant to send first (RFC 5044), that order
//! is the point.
//!
//! `kernel-cmatose serve|connect ADDRESS:PORT`; CMID_BACKEND selects the backend of cmid-verbs.
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use cmid_blocking::{Connection, Listener, Options};
use cmid_proto::ConnParam;
use cmid_proto::datapath::{Access, Attaching, Caps, CreateError, SendWr, prelude::*};
use cmid_verbs::{Backend, Cq, Mr, Pd, Qp, Verbs};

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// The limit of each wait.
const SPAN: Duration = Duration::from_secs(20);
/// The defaults of ucmatose: the number of messages, and their length in bytes.
const MESSAGES: u32 = 10;
const LENGTH: usize = 100;

fn main() -> Done {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [role, address] = arguments.as_slice() else { return Err("kernel-cmatose serve|connect ADDRESS:PORT".into()) };
    let address: SocketAddr = address.parse()?;
    let backend: Backend = std::env::var("CMID_BACKEND").map_or(Ok(Backend::default()), |name| name.parse())?;
    let device = Verbs::open_with(backend)?;
    let param = ConnParam { responder_resources: 1, initiator_depth: 1, retry_count: 5, ..ConnParam::default() };
    let options = Options { param, timeout: SPAN, ..Options::default() };
    match role.as_str() {
        "serve" => {
            let incoming = Listener::bind(device, address)?.accept(SPAN)?;
            let (mut connection, mut messages) = incoming.accept(&options, Messages::attach)?;
            messages.send()?;
            messages.receive()?;
            connection.disconnect(SPAN)?;
        }
        "connect" => {
            let (mut connection, mut messages) = Connection::connect(device, address, &options, Messages::attach)?;
            messages.receive()?;
            messages.send()?;
            // The server disconnects once it has everything.
            connection.wait_closed(SPAN)?;
        }
        other => return Err(format!("{other} is neither serve nor connect").into()),
    }
    println!("{MESSAGES} messages of {LENGTH} bytes each way");
    Ok(())
}

/// The messages of one side.
struct Messages {
    qp: Qp,
    cq: Cq,
    memory: Mr,
    _pd: Pd,
    sent: u32,
    received: u32,
}

impl Messages {
    /// Creates a QP and posts all receives.
    fn attach(device: &mut Verbs, to: Attaching<'_>) -> Result<Self, CreateError> {
        let id = to.id();
        let pd = device.alloc_pd(id)?;
        let cq = device.create_cq(id, 2 * MESSAGES)?;
        let memory = pd.register(vec![0; 2 * LENGTH], Access::LOCAL_WRITE)?;
        let caps = Caps { max_send_wr: MESSAGES, max_recv_wr: MESSAGES, ..Caps::default() };
        let mut qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        for number in 0..MESSAGES {
            qp.post_recv(u64::from(number), memory.sge(0..LENGTH))?;
        }
        Ok(Messages { qp, cq, memory, _pd: pd, sent: 0, received: 0 })
    }

    fn send(&mut self) -> Done {
        for number in MESSAGES..2 * MESSAGES {
            self.qp.post_send(SendWr::send(u64::from(number), self.memory.sge(LENGTH..2 * LENGTH)))?;
        }
        self.poll_until(|messages| messages.sent == MESSAGES)
    }

    fn receive(&mut self) -> Done {
        self.poll_until(|messages| messages.received == MESSAGES)
    }

    fn poll_until(&mut self, done: impl Fn(&Self) -> bool) -> Done {
        let end = Instant::now() + SPAN;
        while !done(self) {
            match self.cq.poll_one()? {
                Some(completion) if !completion.is_success() => {
                    return Err(format!("a message ended with \"{}\"", completion.status).into());
                }
                Some(completion) if completion.wr_id < u64::from(MESSAGES) => self.received += 1,
                Some(_) => self.sent += 1,
                None if Instant::now() >= end => {
                    return Err(format!("{} sent, {} received in {SPAN:?}", self.sent, self.received).into());
                }
                None => thread::yield_now(),
            }
        }
        Ok(())
    }
}
