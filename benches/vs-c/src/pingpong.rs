//! rdma-core's `ibv_rc_pingpong -e` with cmid's data path: ping-pong messages, with the same number of posted receives.
//! The next send is posted when the last has completed and the answer has arrived. Connects through cmid, not over
//! TCP.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use clap::Args;
use cmid_epoll::{Config, Epoll};
use cmid_proto::datapath::{SendWr, prelude::*};
use cmid_proto::{Acks, ChannelKey, CmEvent, Event, IdKey, PortSpace, Time};
use cmid_verbs::{Access, Backend, Caps, Completion, Cq, Mr, Qp, Verbs, WcStatus};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::connections::RESOLVE;
use crate::param::PARAM;

const SEND: u64 = 1;
const RECV: u64 = 2;
/// The number of completions polled at a time, as in `ibv_rc_pingpong`.
const BATCH: usize = 2;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Arguments {
    /// The address to listen on, or to connect to
    address: SocketAddr,
    /// Listen
    #[arg(short, long)]
    server: bool,
    /// The number of messages each way
    #[arg(short = 'n', long, default_value_t = 1000)]
    iters: u32,
    /// The length of each message in bytes
    #[arg(short = 'z', long, default_value_t = 4096)]
    size: usize,
    /// The number of posted receives
    #[arg(short, long, default_value_t = 500)]
    rx_depth: u32,
    /// Wait in a read of the completion channel, as `ibv_rc_pingpong` does, and not in poll(2)
    #[arg(short, long)]
    blocking: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let mut driver = Epoll::new(Verbs::open_with(Backend::Librdmacm)?, Config::default())?;
    let channel = driver.drive().open_channel(Acks::OnDelivery)?;
    let id = driver.drive().create_id(Some(channel), PortSpace::Tcp)?;
    let drive = driver.drive();
    if arguments.server {
        drive.bind(id, arguments.address)?;
        drive.listen(id, 0)?;
    } else {
        drive.resolve_addr(id, None, arguments.address, drive.within(RESOLVE))?;
    }
    let mut pinger = None;
    let mut begin = None;
    while begin.is_none() {
        driver.wait(None)?;
        while let Some(event) = driver.drive().next_event(channel) {
            match event.cm() {
                Some(CmEvent::AddrResolved) => {
                    let drive = driver.drive();
                    drive.resolve_route(event.id, drive.within(RESOLVE))?;
                }
                Some(CmEvent::RouteResolved) => {
                    pinger = Some(Pinger::new(&mut driver, event.id, arguments)?);
                    driver.drive().connect(event.id, PARAM, &[], Time::NEVER)?;
                }
                Some(CmEvent::ConnectRequest) => {
                    pinger = Some(Pinger::new(&mut driver, event.id, arguments)?);
                    driver.drive().accept(event.id, PARAM, &[], Time::NEVER)?;
                }
                Some(CmEvent::Established) => begin = Some((event.id, Instant::now())),
                _ => bail!("{} with status {}", event.kind, event.status),
            }
        }
    }
    let (Some(mut pinger), Some((id, begin))) = (pinger, begin) else { bail!("connected without a QP") };
    pinger.run(&mut driver, channel)?;
    let (span, iters) = (begin.elapsed().as_secs_f64(), arguments.iters);
    if !arguments.server {
        println!("{iters} iters in {span:.2} seconds = {:.2} usec/iter", span * 1e6 / f64::from(iters));
    }
    // The client may still wait for its last completion when the server is done.
    while arguments.server && driver.drive().next_event(channel).is_none() {
        driver.wait(None)?;
    }
    driver.drive().disconnect(id, Time::NEVER)?;
    Ok(())
}

struct Pinger {
    qp: Qp,
    cq: Cq,
    mr: Mr,
    arguments: Arguments,
    sent: u32,
    received: u32,
    /// The number of posted receives.
    posted: u32,
    /// The completions awaited before the next send.
    pending: u64,
}

impl Pinger {
    fn new(driver: &mut Epoll<Verbs>, id: IdKey, arguments: Arguments) -> Result<Self> {
        let drive = driver.drive();
        let device = drive.device_mut();
        let pd = device.alloc_pd(id)?;
        let cq = device.create_cq(id, arguments.rx_depth + 1)?;
        let mr = pd.register(vec![0; arguments.size], Access::LOCAL_WRITE)?;
        let caps = Caps { max_send_wr: 1, max_recv_wr: arguments.rx_depth, ..Caps::default() };
        let qp = drive.attach_qp(id, |device, attaching| device.create_qp(attaching, &pd, &cq, &cq, caps))?;
        let mut pinger = Pinger { qp, cq, mr, arguments, sent: 0, received: 0, posted: 0, pending: RECV };
        pinger.receive()?;
        pinger.cq.arm()?;
        Ok(pinger)
    }

    fn receive(&mut self) -> Result<()> {
        while self.posted < self.arguments.rx_depth {
            self.qp.post_recv(RECV, self.mr.sge(0..self.arguments.size))?;
            self.posted += 1;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.qp.post_send(SendWr::send(SEND, self.mr.sge(0..self.arguments.size)))?;
        self.pending = SEND | RECV;
        Ok(())
    }

    fn run(&mut self, driver: &mut Epoll<Verbs>, channel: ChannelKey) -> Result<()> {
        if !self.arguments.server {
            self.send()?;
        }
        let mut completions = [Completion::default(); BATCH];
        while self.sent < self.arguments.iters || self.received < self.arguments.iters {
            if self.arguments.blocking {
                let taken = self.cq.wait(&mut completions)?;
                self.take(&completions[..taken])?;
                continue;
            }
            self.sleep(driver, channel)?;
            // All of them, because a notification is sent only for completions after it was armed.
            let mut taken = BATCH;
            while taken == BATCH {
                taken = self.cq.poll(&mut completions)?;
                self.take(&completions[..taken])?;
            }
        }
        Ok(())
    }

    fn take(&mut self, completions: &[Completion]) -> Result<()> {
        completions.iter().try_for_each(|completion| self.complete(completion))
    }

    fn complete(&mut self, completion: &Completion) -> Result<()> {
        ensure!(completion.status == WcStatus::SUCCESS, "{completion:?}");
        if completion.wr_id == SEND {
            self.sent += 1;
        } else {
            self.received += 1;
            self.posted -= 1;
            if self.posted <= 1 {
                self.receive()?;
            }
        }
        self.pending &= !completion.wr_id;
        if self.pending == 0 && self.sent < self.arguments.iters {
            self.send()?;
        }
        Ok(())
    }

    /// Sleeps until the CQ notifies. Fails if the connection ends.
    fn sleep(&mut self, driver: &mut Epoll<Verbs>, channel: ChannelKey) -> Result<()> {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.cq.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(driver.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [completions, events] = fds.map(|fd| !fd.revents().is_empty());
            if completions {
                self.cq.take_notifications()?;
                return Ok(self.cq.arm()?);
            }
            if events {
                let _look = driver.turn()?;
                if let Some(event) = driver.drive().next_event(channel) {
                    ended(&event)?;
                }
            }
        }
    }
}

fn ended(event: &Event) -> Result<()> {
    bail!("{} with status {}", event.kind, event.status)
}
