//! Answers of a core in words. They are built from public methods, so they do not depend on its implementation.

use cmid_proto::{Admission, Call, Core, Event, Fault, IdKey, ReceivedParam};

use crate::bytes::Bytes;

/// A core in numbers.
pub(crate) fn summary(core: &Core) -> String {
    let work = if core.has_work() { ", work" } else { "" };
    format!("{}{work}, activity {}", core.summary(), core.activity())
}

/// All observable state of a core, including its pending output.
pub(crate) fn snapshot(core: &Core) -> String {
    // Polling changes the core, so this polls a copy.
    let mut copy = core.clone();
    let mut parts: Vec<_> = core.ids().map(|key| format!("{key}: {}", id(core, key))).collect();
    let to_read: Vec<_> = std::iter::from_fn(|| copy.poll_readable()).collect();
    for key in core.channels() {
        let events: Vec<_> = std::iter::from_fn(|| copy.poll_event(key)).map(|it| event(&it, hex)).collect();
        parts.push(if events.is_empty() { key.to_string() } else { format!("{key}: {}", events.join(" and ")) });
    }
    parts.extend(to_read.into_iter().map(|channel| format!("to be read: {channel}")));
    parts.push(summary(core));
    parts.join("; ")
}

/// An id in one line.
fn id(core: &Core, key: IdKey) -> String {
    let mut parts = vec![core.state(key).map_or("gone", |state| state.name()).to_owned()];
    let info = core.id_info(key);
    parts.extend(info.map(|it| it.port_space.to_string()));
    if let Some(home) = core.channel(key) {
        parts.push(format!("on {home}"));
        let device = core.device_channel(key).filter(|&channel| channel != home);
        parts.extend(device.map(|channel| format!("reported on {channel}")));
    }
    if let Some(info) = info {
        parts.extend(info.is_sync.then(|| "synchronous".into()));
        parts.extend(info.has_qp.then(|| "with a QP".into()));
        parts.extend((info.owed > 0).then(|| format!("{} acks owed", info.owed)));
        parts.extend(info.sync_open.map(|request_kind| format!("{request_kind} is open")));
    }
    parts.extend(core.sync_result(key).map(|result| match result {
        Ok(()) => "the last request succeeded".into(),
        Err(errno) => format!("the last request failed with {errno}"),
    }));
    parts.extend(core.sync_event(key).map(|ended| format!("ended by {}", event(&ended, hex))));
    parts.join(", ")
}

/// Private data as the format has it.
pub(crate) fn hex(data: &[u8]) -> String {
    Bytes::from(data).to_string()
}

/// Private data for a reader: `"busy"/148` if it is printable up to trailing zeros, else as the format has it.
pub(crate) fn shown(data: &[u8]) -> String {
    let text = std::str::from_utf8(data).unwrap_or_default().trim_end_matches('\0');
    let is_text = !text.is_empty() && text.bytes().all(|it| it == b' ' || it.is_ascii_graphic());
    if is_text { format!("{text:?}/{}", data.len()) } else { hex(data) }
}

/// An event in one line, with all its fields, and its private data in these words.
pub(crate) fn event(event: &Event, data: fn(&[u8]) -> String) -> String {
    let Event { id, listener, kind, status, param, datagram, group, private_data, ack_token } = event;
    let mut parts = vec![format!("{kind} on {id}")];
    parts.extend(listener.map(|listener| format!("from {listener}")));
    parts.extend(group.map(|group| format!("of {group}")));
    parts.extend((*status != 0).then(|| format!("status {status}")));
    if *param != ReceivedParam::default() {
        let it = **param;
        let (flow, srq) = (u8::from(it.flow_control), u8::from(it.srq));
        parts.push(format!("depths {} and {}", it.responder_resources, it.initiator_depth));
        parts.push(format!("retries {} and {}", it.retry_count, it.rnr_retry_count));
        parts.push(format!("flow control {flow}, srq {srq}, QP {:#x}", it.qp_num));
    }
    parts.extend(datagram.map(|datagram| format!("{datagram:?}")));
    parts.extend((!private_data.is_empty()).then(|| format!("data {}", data(private_data))));
    parts.extend(ack_token.as_ref().map(|ack_token| format!("to be acked for {}", ack_token.owner())));
    parts.join(", ")
}

/// A call, with all its arguments, and its private data in these words.
pub(crate) fn call(call: &Call, private_data: &[u8], data: fn(&[u8]) -> String) -> String {
    let data = if private_data.is_empty() { String::new() } else { format!(", data {}", data(private_data)) };
    format!("{call:?}{data}")
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

#[cfg(test)]
mod tests {
    use cmid_proto::datapath::{AhAttr, GlobalRoute};
    use cmid_proto::{ConnParam, Datagram, EventKind, GroupKey, PrivateData, RequestKind};

    use super::*;

    #[test]
    fn an_event_is_no_longer_than_a_line_permits() {
        let id = IdKey::from_bits(u64::MAX).unwrap();
        let grh =
            GlobalRoute { dgid: [0xff; 16], flow_label: u32::MAX, sgid_index: 255, hop_limit: 255, traffic_class: 255 };
        let path = AhAttr { dlid: u16::MAX, sl: 255, port_num: 255, grh: Some(grh), ..AhAttr::default() };
        let it = Event {
            id,
            listener: Some(id),
            kind: EventKind::DeadlinePassed(RequestKind::ResolveRoute),
            status: i32::MIN,
            param: ReceivedParam(ConnParam { qp_num: u32::MAX, ..ConnParam::default() }),
            datagram: Some(Datagram { qp_num: u32::MAX, qkey: u32::MAX, path }),
            group: GroupKey::from_bits(u64::MAX),
            private_data: PrivateData::copy_of(&[0xff; PrivateData::MAX]),
            ack_token: None,
        };
        let text = event(&it, hex);
        // Its token and its channel are to be named too.
        assert!(text.len() + 200 < crate::read::OBJECT_MAX as usize, "{} bytes: {text}", text.len());
    }

    #[test]
    fn only_what_is_printable_is_text() {
        for (data, words) in [
            (&b"busy\0\0"[..], r#""busy"/6"#),
            (b"say \"no\"", r#""say \"no\""/8"#),
            (b"\0\0", "/2"),
            (b"a\0b\0", "610062/4"),
            (b"a\n", "610a/2"),
            ("é".as_bytes(), "c3a9/2"),
            (b"ab\xff", "6162ff/3"),
        ] {
            assert_eq!(shown(data), words);
        }
    }
}
