//! The ACK timeout of ids.

use cmid_proto::datapath::QpState;
use cmid_proto::{Call, CmEvent, CmOption, IdKey};

use crate::env::{Side, param};

/// The ACK timeout that a QP of this id would get now.
fn ack_timeout(side: &mut Side, id: IdKey) -> u8 {
    let mut attr = side.device.qp_attr(id, QpState::RTS).expect("qp_attr");
    let place: *mut rdma_sys::ibv_qp_attr = attr.as_mut_ptr().cast();
    // SAFETY: the attributes are of `struct ibv_qp_attr`, initialized by the device, and live until the end of the function.
    unsafe { (*place).timeout }
}

/// The timeout counts where a QP moves to RTS (`rdma_init_qp_attr`): on each side that of its own id.
pub(crate) fn ack_timeouts() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (listener, addr) = server.listener();
    let own = |power| CmOption::AckTimeout(power);
    server.ok(&Call::SetOption { id: listener, option: own(11) });
    let id = client.resolved(addr);
    client.ok(&Call::SetOption { id, option: own(9) });
    client.ok(&Call::Connect { id, param: param() });
    let request = server.expect(CmEvent::ConnectRequest).id;
    let of_the_path = ack_timeout(&mut server, request);
    assert!(
        ![9, 11].contains(&of_the_path),
        "that of the client is set too late for the route, the listener's is not inherited"
    );
    server.ok(&Call::SetOption { id: request, option: own(12) });
    assert_eq!(ack_timeout(&mut server, request), 12);
    server.ok(&Call::Accept { id: request, param: param() });
    client.expect(CmEvent::ConnectResponse);
    assert_eq!(ack_timeout(&mut client, id), 9);
    // It counts until the answer is confirmed.
    client.ok(&Call::SetOption { id, option: own(13) });
    assert_eq!(ack_timeout(&mut client, id), 13);

    // Before the route is resolved, it also reaches the other side, by the packet life time. A smaller one would be raised
    // by the ACK delay of the device (`cm_ack_timeout`): 15 becomes 16 on soft-RoCE.
    let id = client.id();
    client.ok(&Call::SetOption { id, option: own(18) });
    client.resolve(id, addr);
    client.ok(&Call::Connect { id, param: param() });
    let request = server.expect(CmEvent::ConnectRequest).id;
    assert_eq!(ack_timeout(&mut server, request), 18);
}
