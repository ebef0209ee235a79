//! A side that calls the bare device.

use std::collections::{BTreeMap, BTreeSet};

use cmid_proto::datapath::{Attaching, DataPath};
use cmid_proto::{Call, ChannelKey, CmEvent, Ece, Errno, GroupKey, IdKey, Outcome, RejectReason};

use crate::address::{Endpoint, Ip, Numbers};
use crate::data::{Data, DataStep, Published};
use crate::program::{Action, CHILDREN, ChannelNo, Slot};
use crate::runner::{BeforeRead, HUGE, Observed, Path, Runner, data, name, param};
use crate::trace::{Line, Seen, SideTrace, address, contents_of, is_readable, readable, result_of, value_of};

/// Longer than any program: a lookup either succeeds at once or not at all.
const LOOKUP_MS: i32 = 30_000;

/// More events than a program can cause. Bounds a run with an endless sequence of events.
const EVENTS_MAX: usize = 256;

/// A side on the bare device.
pub(crate) struct DeviceRunner<D: DataPath> {
    // Dropped before their device.
    paths: BTreeMap<Slot, Path<D>>,
    data: BTreeMap<Slot, Data<D>>,
    device: D,
    numbers: Numbers,
    /// The existing ids, and their channels.
    ids: BTreeMap<Slot, ChannelNo>,
    channels: Vec<ChannelNo>,
    listeners: BTreeSet<Slot>,
    next_child: Slot,
    trace: SideTrace,
    observed: Observed,
    before_read: BeforeRead,
    /// The memory of this side and of the peer.
    published: [Published; 2],
}

/// Keys are numbered densely, as in a core. Every slot is used only once.
fn id_key(id: Slot) -> Result<IdKey, Errno> {
    IdKey::from_parts(0, u32::from(id), 1).ok_or(Errno::EINVAL)
}

fn channel_key(channel: ChannelNo) -> Result<ChannelKey, Errno> {
    ChannelKey::from_parts(0, u32::from(channel), 1).ok_or(Errno::EINVAL)
}

fn group_key(id: Slot, group: u8) -> Result<GroupKey, Errno> {
    GroupKey::from_parts(0, u32::from(id) << 8 | u32::from(group), 1).ok_or(Errno::EINVAL)
}

impl<D: DataPath> DeviceRunner<D> {
    pub(crate) fn new(device: D, numbers: Numbers, before_read: BeforeRead, published: [Published; 2]) -> Self {
        DeviceRunner {
            paths: BTreeMap::new(),
            data: BTreeMap::new(),
            device,
            numbers,
            ids: BTreeMap::new(),
            channels: Vec::new(),
            listeners: BTreeSet::new(),
            next_child: CHILDREN,
            trace: SideTrace::new(),
            observed: Observed::default(),
            before_read,
            published,
        }
    }

    fn note_call(&mut self, at: usize, name: &'static str, text: String, result: &Outcome) {
        self.trace.push(Line { step: at, what: Seen::Call { name, text, result: result_of(result) } });
    }

    fn call(&mut self, at: usize, action: &Action, call: Call, data: &[u8]) -> bool {
        let result = self.device.call(&call, data);
        self.note_call(at, call.name(), format!("{action:?}"), &result);
        result.is_ok()
    }

    fn act(&mut self, at: usize, action: &Action) -> Result<(), Errno> {
        let numbers = self.numbers;
        let endpoint = |endpoint: Endpoint| endpoint.resolve(numbers);
        let group = |number| endpoint(Endpoint(Ip::group(number), 0));
        let mut private = Vec::new();
        let call = match *action {
            Action::OpenChannel { channel, explicit_acks: _ } => {
                if self.call(at, action, Call::OpenChannel { channel: channel_key(channel)? }, &[]) {
                    self.channels.push(channel);
                }
                return Ok(());
            }
            // When a channel with ids is closed, librdmacm follows dangling pointers.
            Action::CloseChannel { channel } if self.ids.values().any(|&on| on == channel) => return Ok(()),
            Action::CloseChannel { channel } => {
                if self.call(at, action, Call::CloseChannel { channel: channel_key(channel)? }, &[]) {
                    self.channels.retain(|&open| open != channel);
                }
                return Ok(());
            }
            Action::Create { id, channel, space } => {
                let Some(on) = channel else { return Ok(()) };
                let call = Call::CreateId { id: id_key(id)?, channel: channel_key(on)?, port_space: space.into() };
                if self.call(at, action, call, &[]) {
                    self.ids.insert(id, on);
                }
                return Ok(());
            }
            Action::Migrate { id, to } => {
                let (Some(to), Some(&from)) = (to, self.ids.get(&id)) else { return Ok(()) };
                let before = self.is_readable(to);
                let call = Call::Migrate { id: id_key(id)?, from: channel_key(from)?, to: channel_key(to)? };
                if self.call(at, action, call, &[]) {
                    self.ids.insert(id, to);
                    self.observed.moved_unread += u32::from(!before && self.is_readable(to));
                }
                return Ok(());
            }
            Action::Destroy { id } => {
                if self.call(at, action, Call::Destroy { id: id_key(id)? }, &[]) {
                    self.ids.remove(&id);
                    self.paths.remove(&id);
                    self.data.remove(&id);
                }
                return Ok(());
            }
            Action::AttachQp { id } | Action::AttachHugeQp { id } => {
                let most = if matches!(action, Action::AttachHugeQp { .. }) { HUGE } else { 1 };
                let result = Path::attach(&mut self.device, Attaching::bare(id_key(id)?), most);
                let result = result.map(|path| drop(self.paths.insert(id, path)));
                self.note_call(at, "create_qp", format!("{action:?}"), &result.map_err(Errno::from));
                return Ok(());
            }
            Action::DetachQp { id } => {
                let result = self.device.destroy_qp(id_key(id)?);
                self.note_call(at, "destroy_qp", format!("{action:?}"), &result);
                self.paths.remove(&id);
                return Ok(());
            }
            Action::Read { channel, most } => {
                self.read(at, channel, most.map_or(EVENTS_MAX, usize::from));
                return Ok(());
            }
            Action::Data { id, step } => {
                self.perform_data(at, id, step)?;
                return Ok(());
            }
            Action::Turn
            | Action::Ack { .. }
            | Action::Teardown { .. }
            | Action::GetRequest { .. }
            | Action::LetTimePass => return Ok(()),
            Action::Bind { id, at } => Call::Bind { id: id_key(id)?, addr: endpoint(at) },
            Action::ResolveAddr { id, src, dst } => {
                Call::ResolveAddr { id: id_key(id)?, src: src.map(endpoint), dst: endpoint(dst), timeout_ms: LOOKUP_MS }
            }
            Action::ResolveRoute { id } => Call::ResolveRoute { id: id_key(id)?, timeout_ms: 2000 },
            Action::Listen { id, backlog } => {
                if self.call(at, action, Call::Listen { id: id_key(id)?, backlog }, &[]) {
                    self.listeners.insert(id);
                }
                return Ok(());
            }
            Action::Connect { id, offer } => {
                private = data(at, id, offer.data);
                Call::Connect { id: id_key(id)?, param: param(offer, numbers) }
            }
            Action::Accept { id, offer } => {
                private = data(at, id, offer.data);
                Call::Accept { id: id_key(id)?, param: param(offer, numbers) }
            }
            Action::Reject { id, ece, data: len } => {
                private = data(at, id, len);
                let reason = if ece { RejectReason::Ece } else { RejectReason::Consumer };
                Call::Reject { id: id_key(id)?, reason }
            }
            Action::Establish { id } => Call::Establish { id: id_key(id)? },
            Action::Disconnect { id } => Call::Disconnect { id: id_key(id)? },
            Action::Notify { id } => Call::Notify { id: id_key(id)? },
            Action::Join { id, group: number, send_only } => {
                Call::Join { id: id_key(id)?, group: group_key(id, number)?, addr: group(number), send_only }
            }
            Action::Leave { id, group: number } => {
                Call::Leave { id: id_key(id)?, group: group_key(id, number)?, addr: group(number) }
            }
            Action::SetOption { id, option } => Call::SetOption { id: id_key(id)?, option: option.into() },
            Action::SetEce { id, options } => {
                let ece = Ece { vendor_id: 0x1234, options };
                Call::SetEce { id: id_key(id)?, ece }
            }
        };
        self.call(at, action, call, &private);
        Ok(())
    }

    fn perform_data(&mut self, at: usize, id: Slot, step: DataStep) -> Result<(), Errno> {
        let [own, peer] = &self.published;
        let lines = match (self.data.get_mut(&id), step) {
            (None, DataStep::Attach | DataStep::AttachShared) => {
                let shares_receives = step == DataStep::AttachShared;
                let result = Data::attach(&mut self.device, Attaching::bare(id_key(id)?), shares_receives, own);
                let result = result.map(|data| drop(self.data.insert(id, data)));
                vec![result_of(&result)]
            }
            (None, _) => vec!["no QP".to_owned()],
            (Some(_), DataStep::Detach) => vec![result_of(&self.device.destroy_qp(id_key(id)?))],
            (Some(data), _) => data.perform(at as u64, step, own, peer),
        };
        self.note_data(at, id, step, lines);
        Ok(())
    }

    fn note_data(&mut self, at: usize, id: Slot, step: DataStep, lines: Vec<String>) {
        for result in lines {
            let text = format!("{} {step:?}", name(id));
            self.trace.push(Line { step: at, what: Seen::Call { name: "data", text, result } });
        }
    }

    fn is_readable(&self, channel: ChannelNo) -> bool {
        channel_key(channel).is_ok_and(|key| is_readable(&self.device, key))
    }

    fn read(&mut self, at: usize, channel: ChannelNo, most: usize) {
        let Ok(key) = channel_key(channel) else { return };
        for _ in 0..most {
            let Ok(child) = id_key(self.next_child) else { return };
            (self.before_read)();
            self.trace.push(Line { step: at, what: readable(&self.device, key, channel) });
            let numbers = self.numbers;
            match self.device.fetch(key, child) {
                Ok(Some(raw)) => {
                    let slot = |id: IdKey| (id.slot() & 0xff) as Slot;
                    let mut rest = contents_of(&raw, numbers);
                    if let Some(listener) = raw.listener {
                        rest += &format!(" at {}", name(slot(listener)));
                    }
                    let (kind, status, id) = (raw.kind, raw.status, slot(raw.id));
                    let what = Seen::Event { channel, kind: kind.to_string(), status, id: name(id), rest };
                    self.trace.push(Line { step: at, what });
                    if kind == CmEvent::ConnectRequest {
                        self.ids.insert(id, channel);
                        self.next_child += 1;
                    }
                }
                Ok(None) => return,
                Err(errno) => {
                    self.note_call(at, "get_cm_event", format!("Read {{ channel: {channel} }}"), &Err(errno));
                    return;
                }
            }
        }
    }
}

impl<D: DataPath> Runner for DeviceRunner<D> {
    fn perform(&mut self, at: usize, action: &Action) {
        if let Err(errno) = self.act(at, action) {
            self.note_call(at, "key", format!("{action:?}"), &Err(errno));
        }
    }

    fn drain(&mut self, at: usize) {
        for channel in self.channels.clone() {
            self.read(at, channel, EVENTS_MAX);
        }
    }

    fn note_state(&mut self, at: usize) {
        for &id in self.ids.keys() {
            let Ok(key) = id_key(id) else { continue };
            let observed =
                |addr: Result<_, Errno>| addr.map_or_else(|e| e.to_string(), |addr| address(addr, self.numbers));
            let (local, peer) = (observed(self.device.local_addr(key)), observed(self.device.peer_addr(key)));
            let ece = value_of(self.device.remote_ece(key));
            let what = Seen::State(format!("{} local {local} peer {peer} ece {ece}", name(id)));
            self.trace.push(Line { step: at, what });
        }
    }

    fn destroy_passive(&mut self, at: usize) {
        let passive = |slot: &Slot| *slot >= CHILDREN || self.listeners.contains(slot);
        let ids: Vec<Slot> = self.ids.keys().copied().filter(passive).collect();
        for id in ids {
            self.perform(at, &Action::Destroy { id });
        }
    }

    fn destroy_all(&mut self, at: usize) {
        let ids: Vec<Slot> = self.ids.keys().copied().collect();
        for id in ids {
            self.perform(at, &Action::Destroy { id });
        }
    }

    fn close_all(&mut self, at: usize) {
        // If the destroy had to wait, the QP of the id is still here.
        self.paths.clear();
        for channel in self.channels.clone() {
            self.perform(at, &Action::CloseChannel { channel });
        }
    }

    fn trace(&self) -> &SideTrace {
        &self.trace
    }

    fn observed(&self) -> Observed {
        self.observed
    }
}
