//! What both sides attach to a connection: a QP, a CQ, and memory for one number in each direction.

use std::time::Duration;

use cmid_proto::datapath::prelude::*;
use cmid_proto::datapath::{Access, AckTimeout, Attaching, CreateError, PostError, QpAttrs, QpParts, SendWr};
use cmid_proto::handshake::{Options, Session};
use cmid_proto::{ConnParam, Drive};
use cmid_sim::{Mr, SimDevice};

/// The port of the server.
pub(crate) const PORT: u16 = 7471;

/// The time limit of a handshake, and of the end of a connection.
pub(crate) const LIMIT: Duration = Duration::from_millis(400);

/// A lost packet is repeated after this time, at most `retry_count` times.
const REPEATS: Duration = Duration::from_millis(20);

/// The options of both sides. The retries are few, so that a silent peer is noticed.
pub(crate) fn options() -> Options<'static> {
    let param = ConnParam { retry_count: 4, rnr_retry_count: 6, ..ConnParam::default() };
    Options { param, timeout: LIMIT, ..Options::default() }
}

pub(crate) type Attached = (QpParts<SimDevice>, Mr);
pub(crate) type Connection = Session<Attached>;

/// Creates the QP of an id, with a receive.
pub(crate) fn attach(device: &mut SimDevice, to: Attaching<'_>) -> Result<Attached, CreateError> {
    let timeout = Some(AckTimeout::at_least(REPEATS));
    let mut parts = device.qp(to).attrs(QpAttrs { timeout, ..QpAttrs::default() }).attach()?;
    let mr = parts.pd.register(vec![0; 16], Access::LOCAL_WRITE)?;
    receive(&mut parts, &mr)?;
    Ok((parts, mr))
}

fn receive(parts: &mut QpParts<SimDevice>, mr: &Mr) -> Result<(), PostError> {
    parts.qp.post_recv(0, mr.sge(0..8))
}

/// Sends a number. The last one must have been answered, so that its memory is free. Does nothing without a connection; a
/// post that fails is followed by a failed completion or an event.
pub(crate) fn send(connection: &mut Connection, number: u64) {
    if let Some((parts, mr)) = connection.attached() {
        let _ = mr.write(8, &number.to_be_bytes()).map(|()| parts.qp.post_send(SendWr::send(1, mr.sge(8..16))));
    }
}

/// No number will arrive any more.
pub(crate) struct Failed;

/// Takes the next number that has arrived, or a failure. Polling a connection that has ended brings it to its end.
pub(crate) fn poll(connection: &mut Connection, drive: &mut Drive<SimDevice>) -> Option<Result<u64, Failed>> {
    loop {
        let Ok(completion) = connection.next_completion(drive) else {
            // It is over then, so this is the last failure.
            let _ = connection.cancel(drive);
            return Some(Err(Failed));
        };
        let completion = completion?;
        if !completion.is_success() {
            return Some(Err(Failed));
        }
        if completion.opcode.is_recv() {
            let (parts, mr) = connection.attached()?;
            let mut bytes = [0; 8];
            let is_received = mr.read(0, &mut bytes).is_ok() && receive(parts, mr).is_ok();
            return Some(if is_received { Ok(u64::from_be_bytes(bytes)) } else { Err(Failed) });
        }
    }
}
