//! A simulated host on which one device call fails: the nth, with one of its possible errnos.
//!
//! After the failure a scenario may observe unexpected results. But it must end, and all that it has made must be
//! destroyable: a driver that is dropped destroys everything on it, and nothing may be left.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cmid_harness::{Check, Devices, Disturbance, DriveOf, Driver, Env, Make, Net, OnEpoll, Rereg, SimEnv, TestDevice};
use cmid_proto::datapath::DataPath;
use cmid_proto::{
    Acks, Call, ChannelKey, Device, DeviceLayer, Errno, Error, Fault, IdKey, Outcome, Pollable, PortSpace, RawEvent,
    State, Time,
};
use cmid_sim::SimDevice;

/// How long a scenario continues after the failed call. An event that it waits for may never arrive.
const AFTERMATH: Duration = Duration::from_millis(200);
/// More ids than a scenario has at a time.
const SLOTS: usize = 16;

/// The possible errnos of a failing call.
#[must_use]
pub const fn errnos(call: &Call) -> &'static [Errno] {
    match call {
        Call::OpenChannel { .. } => &[Errno::EMFILE, Errno::ENODEV],
        Call::CloseChannel { .. } => &[Errno::EIO],
        Call::CreateId { .. } => &[Errno::ENOMEM],
        Call::Bind { .. } => &[Errno::EADDRINUSE, Errno::EADDRNOTAVAIL],
        Call::ResolveAddr { .. } => &[Errno::ENODEV, Errno::ENETUNREACH],
        Call::ResolveRoute { .. } | Call::SetOption { .. } | Call::SetEce { .. } => &[Errno::ENOMEM],
        Call::Listen { .. } => &[Errno::EADDRINUSE],
        Call::Connect { .. } | Call::Accept { .. } | Call::Establish { .. } => &[Errno::ENOMEM, Errno::EINVAL],
        Call::Reject { .. } | Call::Disconnect { .. } | Call::Notify { .. } => &[Errno::EINVAL, Errno::ENXIO],
        Call::Join { .. } | Call::Leave { .. } | Call::Migrate { .. } => &[Errno::ENOMEM, Errno::ENXIO],
        Call::Destroy { .. } => &[Errno::EBUSY, Errno::EIO],
    }
}

/// Which call fails, and the result of the run.
#[derive(Debug, Default)]
struct Plan {
    /// The index of the call, from 0, over all devices of the environment.
    nth: Option<usize>,
    /// Index into [`errnos`].
    choice: usize,
    calls: usize,
    fired: Option<(&'static str, Errno, Instant)>,
    wrong: Vec<String>,
}

type Shared<T> = Arc<Mutex<T>>;

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The objects that exist on a device, according to the calls that succeeded.
#[derive(Debug, Default)]
struct Ledger {
    channels: BTreeSet<ChannelKey>,
    ids: BTreeSet<IdKey>,
    /// The driver is being dropped: calls do not count any more.
    closing: bool,
    /// Faults that the scenario has read from the drive.
    noticed: Vec<Fault>,
}

/// A device that fails once.
#[derive(Debug)]
pub struct Failing<D> {
    device: D,
    plan: Shared<Plan>,
    ledger: Shared<Ledger>,
}

impl<D> Failing<D> {
    /// The errno of this call, if it is the one that fails.
    fn fails(&self, call: &Call) -> Option<Errno> {
        if lock(&self.ledger).closing {
            return None;
        }
        let mut plan = lock(&self.plan);
        plan.calls += 1;
        let errno = *errnos(call).get(plan.choice).filter(|_| plan.nth == Some(plan.calls - 1))?;
        plan.fired = Some((call.name(), errno, Instant::now()));
        Some(errno)
    }
}

impl<D: Device> DeviceLayer for Failing<D> {
    cmid_proto::layer_on!(device: D);

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        let event = self.device.fetch(on, child)?;
        if event.as_ref().is_some_and(|event| event.listener.is_some()) {
            lock(&self.ledger).ids.insert(child);
        }
        Ok(event)
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        if let Some(errno) = self.fails(call) {
            return Err(errno);
        }
        self.device.call(call, private_data)?;
        let mut ledger = lock(&self.ledger);
        if let Call::OpenChannel { channel } = *call {
            ledger.channels.insert(channel);
        } else if let Call::CloseChannel { channel } = *call {
            ledger.channels.remove(&channel);
        } else if let Call::CreateId { id, .. } = *call {
            ledger.ids.insert(id);
        } else if let Call::Destroy { id } = *call {
            ledger.ids.remove(&id);
        }
        Ok(())
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<D::Handle, Errno> {
        let handle = self.device.release(id, channel)?;
        let mut ledger = lock(&self.ledger);
        ledger.ids.remove(&id);
        ledger.channels.remove(&channel);
        Ok(handle)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: D::Handle) -> Outcome {
        self.device.adopt(id, channel, handle)?;
        let mut ledger = lock(&self.ledger);
        ledger.ids.insert(id);
        ledger.channels.insert(channel);
        Ok(())
    }
}

impl<D: Pollable> Pollable for Failing<D> {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.device.fd(on)
    }

    fn sibling(&self) -> Self {
        Failing { device: self.device.sibling(), plan: Arc::clone(&self.plan), ledger: Shared::default() }
    }
}

/// A driver on such a device. When it is dropped, it destroys everything and reports what it could not destroy.
#[derive(Debug)]
pub struct OnFailing<S: Driver<Device: TestDevice>> {
    driver: S,
    plan: Shared<Plan>,
    ledger: Shared<Ledger>,
}

impl<S: Driver<Device: TestDevice>> Driver for OnFailing<S> {
    type Device = S::Device;
    type Poller = S::Poller;
    type Observer = S::Observer;

    fn drive(&mut self) -> &mut DriveOf<S> {
        self.driver.drive()
    }

    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        let fired = lock(&self.plan).fired;
        match fired {
            Some((_, _, at)) if at.elapsed() > AFTERMATH => Err(Errno::ETIMEDOUT),
            Some(_) => self.driver.wait(Some(at_most.unwrap_or(AFTERMATH).min(AFTERMATH))),
            None => self.driver.wait(at_most),
        }
    }

    fn noticed(&mut self, fault: Fault) {
        lock(&self.ledger).noticed.push(fault);
    }
}

impl<S: Driver<Device: TestDevice>> Drop for OnFailing<S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        lock(&self.ledger).closing = true;
        let mut wrong = Vec::new();
        self.end(&mut wrong);
        lock(&self.plan).wrong.append(&mut wrong);
    }
}

impl<S: Driver<Device: TestDevice>> OnFailing<S> {
    fn end(&mut self, wrong: &mut Vec<String>) {
        self.take_all();
        for id in self.drive().core().ids().collect::<Vec<_>>() {
            // An id that was destroyed with its listener, or is being destroyed.
            if self.drive().core().state(id).is_none_or(|state| state == State::Destroying) {
                continue;
            }
            // Refused while the id connects: then the QP is destroyed with the id.
            if self.drive().core().id_info(id).is_some_and(|it| it.has_qp)
                && let Err(error @ (Error::Failed(_) | Error::Fault(_))) =
                    self.drive().detach_qp(id, |device, id| device.destroy_qp(id))
            {
                wrong.push(format!("the QP of {id}: {error}"));
            }
            if let Err(error) = self.drive().destroy(id, Time::NEVER) {
                wrong.push(format!("{id}: {error}"));
            }
        }
        self.take_all();
        // Ack tokens that were dropped with the scenario are never returned. Their ids wait for them, as required.
        let core = self.driver.drive().core();
        let waits =
            |id: &IdKey| core.id_info(*id).map_or(0, |it| it.owed) > 0 && core.state(*id) == Some(State::Destroying);
        let waiting: BTreeSet<IdKey> = core.ids().filter(waits).collect();
        if core.ids().count() != waiting.len() {
            wrong.push(format!("{} ids are left, and {} wait for acks", core.ids().count(), waiting.len()));
        }
        self.serves_on(wrong);
        if waiting.is_empty() {
            self.close_all(wrong);
        }
        self.drive().core().check();
        self.look_at_faults(&waiting, wrong);
    }

    /// Checks that the driver still works after the failure: it reuses the slots of destroyed ids, also of failed
    /// destructions.
    fn serves_on(&mut self, wrong: &mut Vec<String>) {
        let mut made = Vec::new();
        let opened = self.drive().open_channel(Acks::OnDelivery);
        for _ in 0..SLOTS {
            let Ok(channel) = opened else { break };
            match self.drive().create_id(Some(channel), PortSpace::Tcp) {
                Ok(id) => made.push(id),
                Err(Error::Refused(_)) => break,
                Err(error @ (Error::Failed(_) | Error::Fault(_))) => {
                    wrong.push(format!("an id cannot be created any more: {error}"));
                    break;
                }
            }
        }
        self.take_all();
        for id in made {
            if let Err(error) = self.drive().destroy(id, Time::NEVER) {
                wrong.push(format!("{id}, which was made last: {error}"));
            }
        }
        if let Err(error) = opened.and_then(|channel| self.drive().close_channel(channel)) {
            wrong.push(format!("a channel cannot be opened and closed any more: {error}"));
        }
    }

    /// Reads and acks the events of every channel.
    fn take_all(&mut self) {
        for _ in 0..8 {
            let _rest = self.drive().run(64);
            let channels = lock(&self.ledger).channels.clone();
            for channel in channels {
                while let Some(event) = self.drive().next_event(channel) {
                    let acked = event.ack_token.map_or(Ok(()), |ack_token| self.drive().ack(ack_token));
                    debug_assert!(acked.is_ok(), "the ack token is of this driver");
                }
            }
        }
    }

    fn close_all(&mut self, wrong: &mut Vec<String>) {
        let channels = lock(&self.ledger).channels.clone();
        for channel in channels {
            let known = self.drive().core().channel_info(channel).is_some();
            if known && let Err(error) = self.drive().close_channel(channel) {
                wrong.push(format!("{channel}: {error}"));
            }
        }
        let core = self.drive().core();
        let left = (core.ids().count(), core.channels().count(), core.summary().groups);
        if left != (0, 0, 0) || core.poll_timeout().is_some() || core.has_work() {
            wrong.push(format!("the core still has {left:?} ids, channels and groups"));
        }
    }

    /// Checks the reported faults. Only the failing call itself may be reported as a leak, and leave one object at
    /// the device.
    fn look_at_faults(&mut self, waiting: &BTreeSet<IdKey>, wrong: &mut Vec<String>) {
        let fired = lock(&self.plan).fired.map(|(call, errno, _)| (call, errno));
        let mut leaks = 0;
        let noticed = core::mem::take(&mut lock(&self.ledger).noticed);
        let left = std::iter::from_fn(|| self.drive().next_fault());
        for fault in noticed.into_iter().chain(left) {
            if matches!(fault, Fault::Leak { call, errno, .. } if fired == Some((call, errno))) {
                leaks += 1;
            } else {
                wrong.push(format!("fault: {fault}"));
            }
        }
        let ledger = lock(&self.ledger);
        // A failing close is returned to the application, and the key becomes invalid: it is not reported as a leak.
        let unclosed = usize::from(matches!(fired, Some(("destroy_event_channel", _))));
        let strangers: Vec<_> = ledger.ids.difference(waiting).collect();
        let left = strangers.len() + if waiting.is_empty() { ledger.channels.len() } else { 0 };
        if leaks > 1 || left > leaks.max(unclosed) {
            wrong.push(format!(
                "the device still has {strangers:?} and {:?}; {leaks} leaks were reported",
                ledger.channels
            ));
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// How many calls were made.
    pub calls: usize,
    /// The call that failed, and its errno. `None` if there were fewer calls, or fewer possible errnos.
    pub failed: Option<(&'static str, Errno)>,
    /// Violations of what must hold after any failure.
    pub wrong: Vec<String>,
}

/// A simulated host, as in [`SimEnv`], for one run of one scenario.
#[derive(Debug)]
pub struct FailingEnv<S> {
    /// The hosts. They ignore the driver type.
    hosts: SimEnv<OnEpoll<SimDevice>>,
    plan: Shared<Plan>,
    driver: PhantomData<fn() -> S>,
}

impl<S: Make<Failing<SimDevice>>> FailingEnv<S> {
    /// A host on which the nth call, counted from 0, fails with the errno at index `choice` in [`errnos`]; with
    /// `None`, no call fails.
    #[must_use]
    pub fn new(nth: Option<usize>, choice: usize) -> Self {
        let plan = Plan { nth, choice, ..Plan::default() };
        FailingEnv { hosts: SimEnv::new(), plan: Arc::new(Mutex::new(plan)), driver: PhantomData }
    }

    /// The result of the run.
    #[must_use]
    pub fn result(&self) -> Run {
        let plan = lock(&self.plan);
        let failed = plan.fired.map(|(call, errno, _)| (call, errno));
        Run { calls: plan.calls, failed, wrong: plan.wrong.clone() }
    }
}

impl<S: Make<Failing<SimDevice>>> Env for FailingEnv<S> {
    type Driver = OnFailing<S>;

    fn driver(&self) -> Check<OnFailing<S>> {
        let (plan, ledger) = (Arc::clone(&self.plan), Shared::<Ledger>::default());
        let device =
            Failing { device: self.hosts.device()?, plan: Arc::clone(&self.plan), ledger: Arc::clone(&ledger) };
        Ok(OnFailing { driver: S::make(device)?, plan, ledger })
    }

    fn net(&self) -> Net {
        self.hosts.net()
    }

    fn fresh(&self) -> (u16, u32) {
        self.hosts.fresh()
    }

    fn quiet(&self) -> Duration {
        self.hosts.quiet()
    }

    fn time_wait(&self) -> Duration {
        self.hosts.time_wait()
    }

    fn heap(&self) -> u64 {
        self.hosts.heap()
    }

    fn can(&self, what: Disturbance) -> bool {
        // Failures of memory operations are not calls of the core.
        what != Disturbance::MemoryFails && self.hosts.can(what)
    }

    fn disturb(&self, what: Disturbance) -> Check {
        self.hosts.disturb(what)
    }

    fn with_rereg(&self, rereg: Rereg) -> Option<Self> {
        let (hosts, plan) = (self.hosts.with_rereg(rereg)?, Arc::clone(&self.plan));
        Some(FailingEnv { hosts, plan, driver: PhantomData })
    }
}
