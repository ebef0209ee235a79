//! The device goes away under an established connection and its data path.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use cmid_proto::memory::{Error, MrState, PdState, Policy, Why};
use cmid_proto::{Call, CmEvent, Errno};
use cmid_verbs::{Access, Change};

use crate::lab::{Pair, SERVER, Side, group_key, param};

/// `device removal` deletes `rxe0`. The command ends only with this process: rxe has no way to take an open device from
/// a program, and librdmacm closes a device that is gone when it next looks for one.
pub(crate) fn device_removed() {
    let mut pair = Pair::connected();
    let (mut idle, group, addr) = (Side::new(), group_key(4), SocketAddr::from(([239, 1, 2, 4], 0)));
    let member = idle.bound(SERVER);
    idle.ok(&Call::Join { id: member, group, addr, send_only: false });
    let mut memory = pair.s.pd.register(vec![7; 4096], Access::LOCAL_WRITE).expect("register");
    let other = pair.s.pd.register(vec![7; 4096], Access::LOCAL_WRITE).expect("register");
    pair.s.qp.post_recv(1, &memory, 0..4096).expect("post_recv");
    pair.s.qp.post_recv(2, &other, 0..4096).expect("post_recv");
    let mut deleting = Command::new("rdma").args(["link", "delete", "rxe0"]).spawn().expect("rdma(8)");
    let mut removed = [false; 2];
    for (side, removed) in [&mut pair.client, &mut pair.server].into_iter().zip(&mut removed) {
        while let Some(seen) = side.event_within(Duration::from_secs(5)) {
            println!("{:?} of {}, status {}", seen.kind, seen.id, seen.status);
            *removed |= seen.kind == CmEvent::DeviceRemoval;
        }
    }
    assert_eq!(removed, [true, true]);

    // Left to librdmacm, this would free what the unread event leads to.
    idle.fails(&Call::Leave { id: member, group, addr }, Errno::ENXIO);
    assert_eq!(idle.expect(CmEvent::MulticastJoin).group, Some(group));
    idle.expect(CmEvent::DeviceRemoval);
    idle.fails(&Call::Leave { id: member, group, addr }, Errno::ENXIO);
    idle.fails(&Call::Join { id: member, group, addr, send_only: false }, Errno::ENXIO);
    idle.ok(&Call::Destroy { id: member });

    pair.client.fails(&Call::Disconnect { id: pair.c.id }, Errno::ENXIO);
    pair.client.fails(&Call::Connect { id: pair.c.id, param: param() }, Errno::ENXIO);
    // What is known of the device reaches its memory: only an end is left, whatever is in flight.
    let refused = |error: Error| match error {
        Error::Refused(refused) => Some((refused.why, refused.errno())),
        Error::Register(_) | Error::Failed(_) | Error::Dealloc(_) | Error::Fault(_) => None,
    };
    let gone = Some((Why::DeviceGone, Errno::EIO));
    assert_eq!(pair.s.pd.state(), PdState::Stranded);
    let (_, error) = pair.s.pd.register(vec![0; 8], Access::empty()).map(drop).expect_err("the device is gone");
    assert_eq!(refused(error), gone);
    let outcome = memory.reregister(Change::default().to_access(Access::empty()), Policy::default());
    assert_eq!((outcome.result.map_err(refused), memory.state()), (Err(gone), MrState::Unusable));
    assert_eq!(pair.s.qp.post_recv(1, &memory, 0..1), Err(Errno::EINVAL));
    println!("alloc_pd: {:?}", pair.client.device.alloc_pd(pair.c.id).map(drop));
    println!("state: {:?}", pair.s.qp.state());
    println!("take_notifications: {:?}", pair.s.cq.take_notifications());
    println!("deregister: {:?}", memory.deregister().map(|returned| returned.buffer.len()).map_err(|(_, error)| error));
    // Dropping works too, while it is in flight.
    drop(other);
    pair.client.ok(&Call::Destroy { id: pair.c.id });
    drop(pair);
    println!("all is dropped; rdma(8) has ended: {}", deleting.try_wait().expect("a child").is_some());
}
