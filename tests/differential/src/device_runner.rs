//! A side that calls the bare device.

use std::collections::{BTreeMap, BTreeSet};

use cmid_proto::datapath::{Attaching, DataPath, QpState, QueuePair as _};
use cmid_proto::{Call, ChannelKey, CmEvent, Ece, Errno, GroupKey, IdKey, Outcome, RejectReason, Transport};

use crate::address::{Endpoint, Ip, Numbers};
use crate::data::{Data, Published};
use crate::data_step::DataStep;
use crate::program::{Action, CHILDREN, ChannelNo, IdCall, Slot};
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

    /// Makes the call. Returns whether it succeeded.
    fn make(&mut self, at: usize, action: &Action, call: Call, data: &[u8]) -> bool {
        let result = self.device.call(&call, data);
        self.note_call(at, call.name(), format!("{action:?}"), &result);
        result.is_ok()
    }

    fn act(&mut self, at: usize, action: &Action) -> Result<(), Errno> {
        match *action {
            Action::OpenChannel { channel, explicit_acks: _ } => {
                if self.make(at, action, Call::OpenChannel { channel: channel_key(channel)? }, &[]) {
                    self.channels.push(channel);
                }
            }
            // When a channel with ids is closed, librdmacm follows dangling pointers.
            Action::CloseChannel(channel) if self.ids.values().any(|&on| on == channel) => {}
            Action::CloseChannel(channel) => {
                if self.make(at, action, Call::CloseChannel { channel: channel_key(channel)? }, &[]) {
                    self.channels.retain(|&open| open != channel);
                }
            }
            Action::Create { id, channel: Some(on), space } => {
                let call = Call::CreateId { id: id_key(id)?, channel: channel_key(on)?, port_space: space };
                if self.make(at, action, call, &[]) {
                    self.ids.insert(id, on);
                }
            }
            Action::Read { channel, most } => self.read(at, channel, most.map_or(EVENTS_MAX, usize::from)),
            Action::On(id, IdCall::Data(step)) => self.perform_data(at, id, step)?,
            Action::On(id, IdCall::AttachQp | IdCall::AttachHugeQp) => {
                let most = if *action == Action::On(id, IdCall::AttachHugeQp) { HUGE } else { 1 };
                let result = Path::attach(&mut self.device, Attaching::bare(id_key(id)?), most);
                let result = result.map(|path| drop(self.paths.insert(id, path)));
                self.note_call(at, "create_qp", format!("{action:?}"), &result.map_err(Errno::from));
            }
            Action::On(id, IdCall::DetachQp) => {
                let result = self.device.destroy_qp(id_key(id)?);
                self.note_call(at, "destroy_qp", format!("{action:?}"), &result);
                self.paths.remove(&id);
            }
            Action::On(slot, asked) => {
                let Some((call, data)) = self.call(at, slot, asked)? else { return Ok(()) };
                let was_readable = matches!(asked, IdCall::Migrate(Some(to)) if self.is_readable(to));
                if self.make(at, action, call, &data) {
                    self.has_made(slot, asked, was_readable);
                }
            }
            Action::Create { channel: None, .. } | Action::Turn | Action::Ack(_) | Action::LetTimePass => {}
        }
        Ok(())
    }

    /// The call and its private data, if there is one.
    fn call(&self, at: usize, slot: Slot, call: IdCall) -> Result<Option<(Call, Vec<u8>)>, Errno> {
        let numbers = self.numbers;
        let endpoint = |endpoint: Endpoint| endpoint.resolve(numbers);
        let group = |number| endpoint(Endpoint(Ip::group(number), 0));
        let id = id_key(slot)?;
        let mut private = Vec::new();
        let call = match call {
            IdCall::Bind(at) => Call::Bind { id, addr: endpoint(at) },
            IdCall::ResolveAddr { src, dst } => {
                Call::ResolveAddr { id, src: src.map(endpoint), dst: endpoint(dst), timeout_ms: LOOKUP_MS }
            }
            IdCall::ResolveRoute => Call::ResolveRoute { id, timeout_ms: 2000 },
            IdCall::Listen(backlog) => Call::Listen { id, backlog },
            IdCall::Connect(offer) => {
                private = data(at, slot, offer.data);
                Call::Connect { id, param: param(offer, numbers) }
            }
            IdCall::Accept(offer) => {
                private = data(at, slot, offer.data);
                Call::Accept { id, param: param(offer, numbers) }
            }
            IdCall::Reject { ece, data: len } => {
                private = data(at, slot, len);
                Call::Reject { id, reason: if ece { RejectReason::Ece } else { RejectReason::Consumer } }
            }
            IdCall::Establish => Call::Establish { id },
            IdCall::Disconnect => Call::Disconnect { id },
            IdCall::Notify => Call::Notify { id },
            IdCall::Join { group: number, send_only } => {
                Call::Join { id, group: group_key(slot, number)?, addr: group(number), send_only }
            }
            IdCall::Leave(number) => Call::Leave { id, group: group_key(slot, number)?, addr: group(number) },
            IdCall::SetOption(option) => Call::SetOption { id, option },
            IdCall::SetEce(options) => Call::SetEce { id, ece: Ece { vendor_id: 0x1234, options } },
            IdCall::Migrate(to) => {
                let (Some(to), Some(&from)) = (to, self.ids.get(&slot)) else { return Ok(None) };
                Call::Migrate { id, from: channel_key(from)?, to: channel_key(to)? }
            }
            IdCall::Destroy => Call::Destroy { id },
            IdCall::AttachQp
            | IdCall::AttachHugeQp
            | IdCall::DetachQp
            | IdCall::Data(_)
            | IdCall::Teardown
            | IdCall::GetRequest => return Ok(None),
        };
        Ok(Some((call, private)))
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the others change nothing here")]
    fn has_made(&mut self, id: Slot, call: IdCall, was_readable: bool) {
        match call {
            IdCall::Listen(_) => _ = self.listeners.insert(id),
            IdCall::Migrate(Some(to)) => {
                self.ids.insert(id, to);
                self.observed.moved_unread += u32::from(!was_readable && self.is_readable(to));
            }
            IdCall::Destroy => {
                self.ids.remove(&id);
                self.paths.remove(&id);
                self.data.remove(&id);
            }
            _ => {}
        }
    }

    fn perform_data(&mut self, at: usize, id: Slot, step: DataStep) -> Result<(), Errno> {
        let [own, peer] = &self.published;
        let lines = match (self.data.get_mut(&id), step) {
            (None, DataStep::Attach { shares_receives, inline }) => {
                let to = Attaching::bare(id_key(id)?);
                let result = Data::attach(&mut self.device, to, shares_receives, inline, own);
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
            // Only InfiniBand's QPs have one, and before RTS it has no meaning.
            let is_infiniband = self.device.transport(key) == Some(Transport::InfiniBand);
            let qp =
                self.paths.get(&id).map(|path| &path.qp).filter(|qp| is_infiniband && qp.state() == Ok(QpState::RTS));
            let timeout =
                qp.map_or_else(String::new, |qp| format!(" timeout {:?}", qp.attrs().map(|attrs| attrs.timeout)));
            let what = Seen::State(format!("{} local {local} peer {peer} ece {ece}{timeout}", name(id)));
            self.trace.push(Line { step: at, what });
        }
    }

    fn ids(&self) -> Vec<Slot> {
        self.ids.keys().copied().collect()
    }

    fn is_passive(&self, id: Slot) -> bool {
        id >= CHILDREN || self.listeners.contains(&id)
    }

    fn channels(&self) -> Vec<ChannelNo> {
        self.channels.clone()
    }

    fn drop_qps(&mut self) {
        self.paths.clear();
    }

    fn trace(&self) -> &SideTrace {
        &self.trace
    }

    fn observed(&self) -> Observed {
        self.observed
    }
}
