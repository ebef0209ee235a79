//! The device goes while memory is registered on it.

use cmid_proto::CmEvent;
use cmid_proto::memory::{Change, MrState, PdState, Policy, Why};

use super::memory::{LEN, READABLE, bytes, refused, register};
use crate::bench::{Who, pdl};
use crate::failure::same;
use crate::{Bench, Check, Disturbance, Lab, TestMr, TestPd, TestQp};

/// Once the removal has been read, memory can only be deregistered, pinned or not, and nothing more can be made.
pub(super) fn the_device_goes_with_memory_registered<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    let listener = b.listen()?;
    let (own, pd) = (b.pd(Who::Client)?, b.pd(Who::Server)?);
    let mut mr = register(&pd, bytes(1), READABLE)?;
    let (client, mut server) = b.join(&own, &pd)?;
    server.qp.post_recv(1, &mr, 0..LEN)?;
    b.lab.disturb(Disturbance::DeviceGoes)?;
    let mut removed = Vec::new();
    while removed.len() < 2 {
        let channel = b.server.channel;
        let event = b.next(Who::Server, channel, &CmEvent::DeviceRemoval)?;
        if event.cm() == Some(CmEvent::DeviceRemoval) {
            removed.push(event.id);
        }
    }
    same("told", removed.contains(&listener) && removed.contains(&server.id), true)?;
    let (result, back) = mr.reregister(Change::default().to_buffer(bytes(2)), Policy::default());
    refused("re-register", result, Why::DeviceGone)?;
    same("what comes back", back, Some(bytes(2)))?;
    same("the MR", (mr.state(), mr.access()), (MrState::Unusable, None))?;
    refused("register", pd.register(bytes(3), READABLE).map_err(|(_, error)| error), Why::DeviceGone)?;
    same("the PD", pd.state(), PdState::Stranded)?;
    // The receive was never polled, and does not pin any more. Whether the kernel still answers is its business.
    match mr.deregister() {
        Ok(returned) => same("what comes back", returned.buffer, bytes(1))?,
        Err((mr, error)) => {
            same("the MR", (mr.state(), error.errno()), (MrState::Unusable, cmid_proto::Errno::EIO))?;
        }
    }
    let _ = pdl::NONE;
    b.part((client, server))
}
