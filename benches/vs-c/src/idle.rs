//! An idle driver: a connection is established, deadlines are armed far in the future, and no thread may wake up.

use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_harness::{Driver, Make};
use cmid_proto::{Acks, CmEvent, ConnParam, Event, Pollable, PortSpace};

use crate::param::PARAM;

/// Deadlines that do not pass during the measurement.
pub(crate) const FAR: Duration = Duration::from_secs(3600);
/// The time limit of each step of the connection.
const STEP: Duration = Duration::from_secs(10);
/// The number of requests with deadlines that nothing ends.
const ARMED: u16 = 8;
/// From the last event to the beginning of the count.
const SETTLE: Duration = Duration::from_millis(300);

/// Counts the wake-ups of two drivers on two threads in this span. They are connected to each other, and the
/// listening one has requests with deadlines from `armed` on.
///
/// The kernel counts: a thread that sleeps gives up its processor once, and again each time after it has woken.
pub(crate) fn wakeups<W, D>(devices: [D; 2], at: SocketAddr, armed: Duration, span: Duration) -> Result<u64>
where
    W: Make<D>,
    D: Pollable + Send + 'static,
{
    let (sender, receiver) = channel::<Told>();
    let next = || receiver.recv_timeout(STEP).context("no report from a side")?;
    let mut threads = [0; 2];
    for ((device, armed), thread) in devices.into_iter().zip([Some(armed), None]).zip(&mut threads) {
        let sender = sender.clone();
        // It sleeps until the process ends.
        thread::spawn(move || {
            if let Err(error) = side::<W, D>(device, at, armed, &sender) {
                // The receiver may be gone.
                let _ = sender.send(Err(error));
            }
        });
        *thread = next()?;
    }
    for _ in threads {
        next()?;
    }
    thread::sleep(SETTLE);
    let before = switches(threads)?;
    thread::sleep(span);
    let woken = switches(threads)? - before;
    ensure!(receiver.try_recv().is_err(), "a side has ended");
    Ok(woken)
}

/// What a side tells: the number of its thread, when it has been set up and again when it is connected; or its error.
type Told = Result<i32>;

fn tell(sender: &Sender<Told>) -> Result<()> {
    Ok(sender.send(Ok(rustix::thread::gettid().as_raw_nonzero().get()))?)
}

/// Runs one side. The listening one has the deadlines.
fn side<W: Make<D>, D: Pollable>(
    device: D,
    at: SocketAddr,
    armed: Option<Duration>,
    sender: &Sender<Told>,
) -> Result<()> {
    let mut driver = W::make(device)?;
    let channel = driver.drive().open_channel(Acks::OnDelivery)?;
    if let Some(armed) = armed {
        arm(&mut driver, at, armed)?;
        let id = driver.drive().create_id(Some(channel), PortSpace::Tcp)?;
        driver.drive().bind(id, at)?;
        driver.drive().listen(id, 0)?;
    } else {
        let id = driver.drive().create_id(Some(channel), PortSpace::Tcp)?;
        let drive = driver.drive();
        drive.resolve_addr(id, None, at, drive.within(STEP))?;
    }
    tell(sender)?;
    loop {
        driver.wait(None)?;
        while let Some(event) = driver.drive().next_event(channel) {
            handle(&mut driver, at, &event, sender)?;
        }
    }
}

/// Makes requests that nothing ends: listeners in synchronous mode without clients.
fn arm(driver: &mut impl Driver, near: SocketAddr, armed: Duration) -> Result<()> {
    for number in 1..=ARMED {
        let drive = driver.drive();
        let id = drive.create_id(None, PortSpace::Tcp)?;
        drive.bind(id, SocketAddr::new(near.ip(), near.port() + number))?;
        drive.listen(id, 0)?;
        drive.get_request(id, drive.within(armed * u32::from(number)))?;
    }
    Ok(())
}

fn handle(driver: &mut impl Driver, at: SocketAddr, event: &Event, sender: &Sender<Told>) -> Result<()> {
    let (id, drive) = (event.id, driver.drive());
    let step = drive.within(STEP);
    // Without QPs. The numbers must be unused, or the kernel takes a request for a stale one.
    let param = |base: u32| ConnParam { qp_num: base | u32::from(at.port()), ..PARAM };
    match event.cm() {
        Some(CmEvent::AddrResolved) => drive.resolve_route(id, step)?,
        Some(CmEvent::RouteResolved) => drive.connect(id, param(0x30000), &[], step)?,
        Some(CmEvent::ConnectRequest) => drive.accept(id, param(0x40000), &[], step)?,
        Some(CmEvent::ConnectResponse) => {
            drive.establish(id)?;
            tell(sender)?;
        }
        Some(CmEvent::Established) => tell(sender)?,
        _ => bail!("{} with status {}", event.kind, event.status),
    }
    Ok(())
}

/// How often these threads of this process have given up their processors.
fn switches(threads: [i32; 2]) -> Result<u64> {
    threads.into_iter().try_fold(0, |sum, thread| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Ok(sum + line.context("voluntary_ctxt_switches")?.trim().parse::<u64>()?)
    })
}

#[cfg(test)]
mod tests {
    use cmid_harness::{OnBlocking, OnEpoll, OnMio};
    use cmid_sim::{Clock, Config, Fabric, SimDevice};

    use super::*;

    /// The wake-ups of a driver on the simulator in two seconds.
    fn woken<W: Make<SimDevice>>(armed: Duration) -> u64 {
        let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
        let devices = ["10.0.0.2", "10.0.0.1"].map(|ip| fabric.host(&[ip.parse().unwrap()]).device());
        wakeups::<W, _>(devices, "10.0.0.2:7471".parse().unwrap(), armed, Duration::from_secs(2)).unwrap()
    }

    #[test]
    fn an_idle_epoll_driver_sleeps() {
        assert_eq!(woken::<OnEpoll<SimDevice>>(FAR), 0);
    }

    #[test]
    fn an_idle_mio_driver_sleeps() {
        assert_eq!(woken::<OnMio<SimDevice>>(FAR), 0);
    }

    #[test]
    fn an_idle_blocking_driver_sleeps() {
        assert_eq!(woken::<OnBlocking<SimDevice>>(FAR), 0);
    }

    #[test]
    fn a_driver_that_is_woken_is_noticed() {
        // The first deadline passes after the count has begun, and others before it ends.
        assert!(woken::<OnEpoll<SimDevice>>(Duration::from_millis(500)) >= 2);
    }
}
