//! A device in front of another one forwards what it does not override.

use cmid_proto::{Acks, CmEvent, Device as _, DeviceLayer, Drive, Next, PortSpace, RawEvent, Transport};

use crate::device::{LIMITS, Script, addr};

struct Layer(Script);

impl DeviceLayer for Layer {
    cmid_proto::layer_on!(0: Script);
}

#[test]
fn a_layer_forwards_what_it_does_not_override() {
    let mut drive = Drive::new(Layer(Script::new()), LIMITS);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.device_mut().0.events.push_back((channel, RawEvent::new(id, CmEvent::AddrChange)));
    drive.readable(channel);
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.next_event(channel).map(|event| event.id), Some(id));
    drive.device_mut().0.transport = Some(Transport::Iwarp);
    assert_eq!(drive.transport(id), Some(Transport::Iwarp));
    assert_eq!((drive.local_addr(id), drive.peer_addr(id)), (Ok(addr(1)), Ok(addr(2))));
    assert_eq!(drive.remote_ece(id).map(|ece| ece.options), Ok(4));
    for known in [Some(true), Some(false), None] {
        drive.device_mut().0.has_qp = known;
        assert_eq!(drive.device().has_qp(id), known);
    }
    drive.device_mut().discard_qp(id);
    assert_eq!(drive.device().0.calls.last(), Some(&"discard_qp"));
    let sync = drive.create_id(None, PortSpace::Tcp).unwrap();
    let released_id = drive.release(sync).unwrap();
    drive.adopt(released_id).unwrap();
}
