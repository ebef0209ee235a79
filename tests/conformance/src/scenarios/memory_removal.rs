//! The device is removed while memory is registered on it.

use cmid_harness::failure::{ensure, same, why};
use cmid_harness::fixture::Side;
use cmid_harness::{Check, Disturbance, Env, Failure, Fixture, TestMr, TestPd};
use cmid_proto::datapath::{PostReason, SendWr, WcStatus, prelude::*};
use cmid_proto::memory::{Change, MemoryReason, MemoryStep, MrState, PdState, Policy, Valid};
use cmid_proto::{CmEvent, Errno, ErrorWith};

use super::memory::{LEN, READABLE, bytes, contents, failed, refused, register};

/// Once the removal has been read, memory can only be deregistered, when it is not pinned. Nothing new can be made.
pub(super) fn the_device_goes_with_memory_registered<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let listener = b.listen()?;
    let (own, pd) = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let (from, mut mr) = (register(&own, bytes(4), READABLE)?, register(&pd, bytes(1), READABLE)?);
    let (mut client, mut server) = b.join(&own, &pd)?;
    server.qp.post_recv(1, mr.sge(0..LEN))?;
    client.qp.post_send(SendWr::send(3, from.sge(0..LEN)))?;
    b.ends(&mut client, 3, WcStatus::SUCCESS)?;
    b.env.disturb(Disturbance::DeviceGoes)?;
    let mut untold = vec![listener, server.id];
    while !untold.is_empty() {
        let channel = b.server.channel;
        let event = b.next(Side::Server, channel, &CmEvent::DeviceRemoval)?;
        // The peer ends too, and its end may be reported before.
        let of_the_peer = event.cm() == Some(CmEvent::Disconnected) && event.id == server.id;
        ensure(of_the_peer || event.cm() == Some(CmEvent::DeviceRemoval), || format!("{event:?}"))?;
        untold.retain(|id| of_the_peer || *id != event.id);
    }
    let (result, back) = mr.reregister_vec(Change::default().to_buffer(bytes(2)), Policy::default());
    refused("re-register", result, MemoryReason::DeviceGone)?;
    same("what comes back", back, Some(bytes(2)))?;
    same("the MR", (mr.state(), mr.access()), (MrState::Unusable, None))?;
    refused("register", pd.register_vec(bytes(3), READABLE), MemoryReason::DeviceGone)?;
    same("the PD", pd.state(), PdState::Stranded)?;
    // The simulator removes the QP with its device.
    let posted = why(server.qp.post_recv(2, mr.sge(0..LEN)));
    let is_refused = matches!(posted, Err(PostReason::NotRegistered | PostReason::Gone));
    ensure(is_refused, || format!("posting: {posted:?}"))?;
    // The message has arrived, but its completion has not been polled: the poll may be what writes to the memory.
    let Err(ErrorWith { given: mr, error }) = mr.deregister_vec() else {
        return Err(Failure("deregistered in flight".into()));
    };
    refused::<()>("deregister", Err(error), MemoryReason::InFlight)?;
    b.ends(&mut server, 1, WcStatus::SUCCESS)?;
    same("what has arrived", contents(&mr)?, bytes(4))?;
    // rxe waits for its users to close it, and serves them until then. For a device that does not wait it is unknown
    // whether it still uses the memory, so the MR keeps it.
    match mr.deregister_vec() {
        Ok(returned) => same("what comes back", returned.buffer, bytes(4))?,
        Err(ErrorWith { given: mr, error }) => {
            failed::<()>("deregister", Err(error), MemoryStep::Deregister, Errno::EIO, Valid::Neither)?;
            same("the MR", mr.state(), MrState::Unusable)?;
        }
    }
    drop(from);
    b.part((client, server))
}
