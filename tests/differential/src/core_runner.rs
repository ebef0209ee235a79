//! A side that calls the core, like an application.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cmid_proto::datapath::DataPath;
use cmid_proto::{
    AckToken, Acks, ChannelKey, CmEvent, Drive, Ece, Errno, Error, Event, GroupKey, IdKey, Limits, Next, Progress, Time,
};

use crate::address::{Endpoint, Ip, Numbers};
use crate::program::{Action, CHILDREN, ChannelNo, IdCall, Slot};
use crate::recorder::Recorder;
use crate::runner::{BeforeRead, HUGE, Observed, Path, Runner, data, name, param};
use crate::trace::{Line, Seen, SideTrace, address, contents, result_of};

/// Upper bound of turns that the core can need.
const TURNS_MAX: usize = 64;
/// The maximum number of events of one turn.
const BUDGET: usize = 256;

/// A side on a core. Its clock stands still: all deadlines are the kernel's.
pub(crate) struct CoreRunner<D: DataPath> {
    // Dropped before their device.
    paths: BTreeMap<Slot, Path<D>>,
    drive: Drive<Recorder<D>>,
    numbers: Numbers,
    ids: BTreeMap<Slot, IdKey>,
    channels: BTreeMap<ChannelNo, ChannelKey>,
    groups: BTreeMap<(Slot, u8), GroupKey>,
    ack_tokens: VecDeque<AckToken>,
    listeners: BTreeSet<Slot>,
    next_child: Slot,
    trace: SideTrace,
}

impl<D: DataPath> CoreRunner<D> {
    pub(crate) fn new(device: D, numbers: Numbers, before_read: BeforeRead) -> Self {
        CoreRunner {
            paths: BTreeMap::new(),
            drive: Drive::new(Recorder::new(device, numbers, before_read), Limits::default()),
            numbers,
            ids: BTreeMap::new(),
            channels: BTreeMap::new(),
            groups: BTreeMap::new(),
            ack_tokens: VecDeque::new(),
            listeners: BTreeSet::new(),
            next_child: CHILDREN,
            trace: SideTrace::new(),
        }
    }

    fn note(&mut self, at: usize, what: Seen) {
        self.trace.push(Line { step: at, what });
    }

    /// Notes the device's calls and events, before the application's.
    fn note_device(&mut self, at: usize) {
        for what in std::mem::take(&mut self.drive.device_mut().seen) {
            self.note(at, what);
        }
        while let Some(fault) = self.drive.next_fault() {
            self.note(at, Seen::State(format!("fault: {fault}")));
        }
    }

    fn note_result(&mut self, at: usize, name: &'static str, text: String, result: Result<(), Error>) {
        self.note_device(at);
        let result = result_of(&result);
        self.note(at, Seen::Call { name, text, result });
    }

    /// Notes a failure of the core's own check in the trace, so that it is reported with the program.
    fn check(&mut self, at: usize) {
        let core = self.drive.core();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| core.check())) {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            self.note(at, Seen::Broken(text.unwrap_or_else(|| "a panic".to_owned())));
        }
    }

    /// The channel of this number, or synchronous mode. `None` if it is not open.
    fn on(&self, channel: Option<ChannelNo>) -> Option<Option<ChannelKey>> {
        channel.map_or(Some(None), |channel| self.channels.get(&channel).map(|&key| Some(key)))
    }

    fn act(&mut self, at: usize, action: &Action) -> Option<()> {
        let (name, result) = match *action {
            Action::OpenChannel { channel, explicit_acks } => {
                let acks = if explicit_acks { Acks::Explicit } else { Acks::OnDelivery };
                let opened = self.drive.open_channel(acks).map(|key| _ = self.channels.insert(channel, key));
                ("open_channel", opened)
            }
            Action::CloseChannel(channel) => {
                let closed = self.drive.close_channel(*self.channels.get(&channel)?);
                if closed.is_ok() {
                    self.channels.remove(&channel);
                }
                ("close_channel", closed)
            }
            Action::Create { id, channel, space } => {
                let on = self.on(channel)?;
                ("create_id", self.drive.create_id(on, space).map(|key| _ = self.ids.insert(id, key)))
            }
            Action::On(id, call) => self.call(at, id, call)?,
            Action::Turn => {
                self.turn(at);
                return Some(());
            }
            Action::Read { channel, most } => {
                self.read(at, channel, most.map_or(usize::MAX, usize::from));
                return Some(());
            }
            Action::Ack(most) => {
                for _ in 0..most {
                    let ack_token = self.ack_tokens.pop_front()?;
                    let result = self.drive.ack(ack_token).map_err(Error::from);
                    self.note_result(at, "ack", "ack".to_owned(), result);
                }
                return Some(());
            }
            Action::LetTimePass => return Some(()),
        };
        self.note_result(at, name, format!("{action:?}"), result);
        Some(())
    }

    /// Makes the call. Returns what it is called in the trace, and its result.
    fn call(&mut self, at: usize, slot: Slot, call: IdCall) -> Option<(&'static str, Result<(), Error>)> {
        let numbers = self.numbers;
        let endpoint = |endpoint: Endpoint| endpoint.resolve(numbers);
        // Sufficient for the kernel, and never reached by a clock that stands still.
        let deadline = Time::NEVER;
        let id = *self.ids.get(&slot)?;
        let to = if let IdCall::Migrate(to) = call { self.on(to)? } else { None };
        let drive = &mut self.drive;
        Some(match call {
            IdCall::Bind(at) => ("bind_addr", drive.bind(id, endpoint(at))),
            IdCall::ResolveAddr { src, dst } => {
                // Longer than any program: a lookup either succeeds at once or not at all.
                let soon = drive.within(std::time::Duration::from_secs(30));
                ("resolve_addr", drive.resolve_addr(id, src.map(endpoint), endpoint(dst), soon))
            }
            IdCall::ResolveRoute => ("resolve_route", drive.resolve_route(id, deadline)),
            IdCall::Listen(backlog) => ("listen", drive.listen(id, backlog).map(|()| _ = self.listeners.insert(slot))),
            IdCall::AttachQp | IdCall::AttachHugeQp => {
                let most = if call == IdCall::AttachHugeQp { HUGE } else { 1 };
                let attached =
                    drive.attach_qp(id, |recorder, attaching| Path::attach(&mut recorder.device, attaching, most));
                ("create_qp", attached.map(|path| drop(self.paths.insert(slot, path))))
            }
            IdCall::DetachQp => {
                let detached = drive.detach_qp(id, |recorder, id| recorder.device.destroy_qp(id));
                self.paths.remove(&slot);
                ("destroy_qp", detached)
            }
            IdCall::Connect(offer) => {
                ("connect", drive.connect(id, param(offer, numbers), &data(at, slot, offer.data), deadline))
            }
            IdCall::Accept(offer) => {
                ("accept", drive.accept(id, param(offer, numbers), &data(at, slot, offer.data), deadline))
            }
            IdCall::Reject { ece, data: len } => {
                let data = data(at, slot, len);
                ("reject", if ece { drive.reject_ece(id, &data) } else { drive.reject(id, &data) })
            }
            IdCall::Establish => ("establish", drive.establish(id)),
            IdCall::Disconnect => ("disconnect", drive.disconnect(id, deadline)),
            IdCall::Teardown => ("teardown", drive.teardown(id, deadline)),
            IdCall::Notify => ("notify", drive.notify_established(id)),
            IdCall::GetRequest => ("get_request", drive.get_request(id, deadline)),
            IdCall::Join { group, send_only } => {
                let joined = drive.join(id, endpoint(Endpoint(Ip::group(group), 0)), send_only, deadline);
                ("join_multicast", joined.map(|key| _ = self.groups.insert((slot, group), key)))
            }
            IdCall::Leave(group) => ("leave_multicast", drive.leave(id, *self.groups.get(&(slot, group))?).map(drop)),
            IdCall::SetOption(option) => ("set_option", drive.set_option(id, option)),
            IdCall::SetEce(options) => ("set_local_ece", drive.set_ece(id, Ece { vendor_id: 0x1234, options })),
            IdCall::Migrate(_) => {
                let moved = drive.migrate(id, to, deadline);
                let later = moved == Ok(Progress::WhenAcked);
                (if later { "migrate_id later" } else { "migrate_id" }, moved.map(drop))
            }
            IdCall::Destroy => {
                let gone = drive.destroy(id, deadline);
                if gone == Ok(Progress::Done) {
                    self.ids.remove(&slot);
                    self.paths.remove(&slot);
                }
                let later = gone == Ok(Progress::WhenAcked);
                (if later { "destroy_id later" } else { "destroy_id" }, gone.map(drop))
            }
            IdCall::Data(_) => return None,
        })
    }

    /// Reports every channel as readable, whether its descriptor is or not, and reads the private ones. The readiness is
    /// noted.
    fn turn(&mut self, at: usize) {
        for channel in self.drive.device().channels.clone() {
            self.drive.readable(channel);
        }
        for _ in 0..TURNS_MAX {
            if matches!(self.drive.run(BUDGET), Next::Wait(_)) {
                break;
            }
        }
        self.note_device(at);
        let synchronous: Vec<(Slot, IdKey)> = self
            .ids
            .iter()
            .map(|(&slot, &id)| (slot, id))
            .filter(|&(_, id)| self.drive.core().id_info(id).is_some_and(|it| it.is_sync))
            .collect();
        for (slot, id) in synchronous {
            let core = self.drive.core();
            let (open, result, event) =
                (core.id_info(id).and_then(|it| it.sync_open), core.sync_result(id), core.sync_event(id));
            if result.is_none() && open.is_none() {
                continue;
            }
            if let Some(Event { id: child, .. }) = event.filter(|event| event.cm() == Some(CmEvent::ConnectRequest))
                && !self.ids.values().any(|&known| known == child)
                && child != id
            {
                self.ids.insert(self.next_child, child);
                self.next_child += 1;
            }
            self.note(at, Seen::State(format!("sync {} {open:?} {result:?}", name(slot))));
        }
    }

    fn read(&mut self, at: usize, channel: ChannelNo, most: usize) {
        let Some(&key) = self.channels.get(&channel) else { return };
        for _ in 0..most {
            let Some(event) = self.drive.next_event(key) else { return };
            if event.cm() == Some(CmEvent::ConnectRequest) {
                self.ids.insert(self.next_child, event.id);
                self.next_child += 1;
            }
            let called = |id: IdKey| {
                let slot = self.ids.iter().find(|&(_, &key)| key == id);
                slot.map_or_else(|| id.to_string(), |(&slot, _)| name(slot))
            };
            let group = event.group.map(|group| group.slot() as u64);
            let mut rest = contents(event.param, event.datagram, group, &event.private_data, self.numbers);
            if let Some(listener) = event.listener {
                rest += &format!(" at {}", called(listener));
            }
            let id = called(event.id);
            self.note(at, Seen::Event { channel, kind: event.kind.to_string(), status: event.status, id, rest });
            self.ack_tokens.extend(event.ack_token);
        }
    }
}

impl<D: DataPath> Runner for CoreRunner<D> {
    fn perform(&mut self, at: usize, action: &Action) {
        // A step with an id or channel that does not exist in this run is skipped.
        let _ = self.act(at, action);
    }

    fn drain(&mut self, at: usize) {
        self.turn(at);
        for channel in self.channels() {
            self.read(at, channel, usize::MAX);
        }
    }

    fn note_state(&mut self, at: usize) {
        let mut lines = Vec::new();
        for (&slot, &id) in &self.ids {
            let observed =
                |addr: Result<_, Errno>| addr.map_or_else(|e| e.to_string(), |addr| address(addr, self.numbers));
            let (recorder, state) = (self.drive.device(), self.drive.core().state(id));
            let (local, peer) = (observed(recorder.device.local_addr(id)), observed(recorder.device.peer_addr(id)));
            lines.push(format!("{} {state:?} local {local} peer {peer}", name(slot)));
        }
        let core = self.drive.core();
        lines.push(format!("{} ids, {} channels", core.ids().count(), core.channels().count()));
        for text in lines {
            self.note(at, Seen::State(text));
        }
        self.check(at);
    }

    fn ids(&self) -> Vec<Slot> {
        // Children that the application has not received are destroyed with their listener.
        self.ids.keys().copied().collect()
    }

    fn is_passive(&self, id: Slot) -> bool {
        id >= CHILDREN || self.listeners.contains(&id)
    }

    fn channels(&self) -> Vec<ChannelNo> {
        self.channels.keys().copied().collect()
    }

    fn drop_qps(&mut self) {
        self.paths.clear();
    }

    fn trace(&self) -> &SideTrace {
        &self.trace
    }

    fn observed(&self) -> Observed {
        Observed::default()
    }
}
