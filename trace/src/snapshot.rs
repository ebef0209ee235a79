//! The observable state of a core as text. It is built from public methods, so it does not depend on the implementation
//! of the core.

use std::collections::BTreeMap;

use cmid_proto::{Admission, ChannelKey, Core, Event, Fault, Flow, IdKey, ReceivedParam};
use serde::{Deserialize, Serialize};

use crate::values::Bytes;

/// All observable state of a core, including its pending output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snapshot {
    ids: BTreeMap<String, String>,
    /// Undelivered events by channel.
    channels: BTreeMap<String, Vec<String>>,
    /// Device calls that are due.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<String>,
    /// Channels to read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    to_read: Vec<String>,
    sum: Sum,
}

/// A summary of a core in a few numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sum {
    ids: usize,
    channels: usize,
    groups: usize,
    /// Whether the driver has pending work.
    work: bool,
    activity: u64,
    late: u64,
    stray: u64,
    faults: u64,
    discarded: u64,
    /// The next deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due: Option<u64>,
}

impl Sum {
    pub(crate) fn of(core: &Core) -> Self {
        let counters = core.summary().counters;
        Sum {
            ids: core.ids().count(),
            channels: core.channels().count(),
            groups: core.summary().groups,
            work: core.has_work(),
            activity: core.activity(),
            late: counters.late,
            stray: counters.stray,
            faults: counters.faults,
            discarded: counters.discarded,
            due: core.poll_timeout().map(|(due, _)| due.0),
        }
    }
}

impl Snapshot {
    pub(crate) fn of(core: &Core) -> Self {
        // Polling changes the core, so this polls a copy.
        let mut copy = core.clone();
        let ids = core.ids().map(|key| (key.to_string(), id(core, key))).collect();
        let to_read = std::iter::from_fn(|| copy.poll_readable()).map(|channel| channel.to_string()).collect();
        let taken = |key: ChannelKey| std::iter::from_fn(|| copy.poll_event(key)).map(|it| event(&it)).collect();
        let mut taken = taken;
        let channels = core.channels().map(|key| (key.to_string(), taken(key))).collect();
        Snapshot { ids, channels, calls: calls(core), to_read, sum: Sum::of(core) }
    }
}

/// The calls that are due. A drive has made them all, unless its device has panicked.
fn calls(core: &Core) -> Vec<String> {
    let (mut copy, mut calls) = (core.clone(), Vec::new());
    while let Some(mut begun) = copy.next() {
        loop {
            calls.extend(begun.call().map(|call| format!("{call:?}")));
            match begun.end(Ok(())) {
                Flow::Next(next) => begun = next,
                Flow::Done(_) => break,
            }
        }
    }
    calls
}

/// An id in one line.
fn id(core: &Core, key: IdKey) -> String {
    let mut text = core.state(key).map_or("gone", |state| state.name()).to_owned();
    let mut add = |more: String| {
        text.push_str(", ");
        text.push_str(&more);
    };
    if let Some(port_space) = core.id_info(key).map(|it| it.port_space) {
        add(port_space.to_string());
    }
    if let Some(home) = core.channel(key) {
        add(format!("on {home}"));
        if let Some(line) = core.device_channel(key).filter(|&line| line != home) {
            add(format!("reported on {line}"));
        }
    }
    if core.id_info(key).is_some_and(|it| it.is_sync) {
        add("synchronous".into());
    }
    if core.id_info(key).is_some_and(|it| it.has_qp) {
        add("with a QP".into());
    }
    if core.id_info(key).map_or(0, |it| it.owed) > 0 {
        add(format!("{} acks owed", core.id_info(key).map_or(0, |it| it.owed)));
    }
    if let Some(request_kind) = core.id_info(key).and_then(|it| it.sync_open) {
        add(format!("{request_kind} is open"));
    }
    if let Some(result) = core.sync_result(key) {
        add(match result {
            Ok(()) => "the last request succeeded".into(),
            Err(errno) => format!("the last request failed with {errno}"),
        });
    }
    if let Some(ended) = core.sync_event(key) {
        add(format!("ended by {}", event(&ended)));
    }
    text
}

/// An event in one line, with all its fields.
pub(crate) fn event(event: &Event) -> String {
    let Event { id, listener, kind, status, param, datagram, group, private_data, ack_token } = event;
    let mut text = format!("{kind} on {id}");
    let mut add = |more: String| {
        text.push_str(", ");
        text.push_str(&more);
    };
    if let Some(listener) = listener {
        add(format!("from {listener}"));
    }
    if let Some(group) = group {
        add(format!("of {group}"));
    }
    if *status != 0 {
        add(format!("status {status}"));
    }
    if *param != ReceivedParam::default() {
        let it = **param;
        let (flow, srq) = (u8::from(it.flow_control), u8::from(it.srq));
        let depths = format!("depths {} and {}", it.responder_resources, it.initiator_depth);
        let retries = format!("retries {} and {}", it.retry_count, it.rnr_retry_count);
        add(format!("{depths}, {retries}, flow control {flow}, srq {srq}, QP {:#x}", it.qp_num));
    }
    if let Some(datagram) = datagram {
        add(format!("{datagram:?}"));
    }
    if !private_data.is_empty() {
        add(format!("data {}", Bytes::from(&**private_data)));
    }
    if let Some(ack_token) = ack_token {
        add(format!("to be acked for {}", ack_token.owner()));
    }
    text
}

/// The result of a raw event.
pub(crate) fn admission(result: &Result<Admission, Fault>) -> String {
    match result {
        Ok(Admission::Known) => "known".into(),
        Ok(Admission::Child(id)) => format!("child {id}"),
        Ok(Admission::Late) => "late".into(),
        Ok(Admission::Stray) => "stray".into(),
        Err(fault) => format!("fault: {fault}"),
    }
}

/// The name of an id's state; `None` if the id does not exist.
pub(crate) fn state(core: &Core, id: IdKey) -> Option<String> {
    core.state(id).map(|state| state.name().to_owned())
}
