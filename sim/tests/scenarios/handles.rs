//! Ids between devices, and the ends of devices and fabrics.

use cmid_proto::{CmEvent, Device, Errno, Pollable};
use cmid_sim::Fabric;

use crate::common::{Lab, SECOND, Side, ip};

#[test]
fn an_id_moves_to_another_device_with_its_events() {
    let mut lab = Lab::new();
    let (_, c, s) = lab.requested();
    let own = lab.server.channel();
    lab.server.migrate(s, lab.cs, own).unwrap();
    let param = lab.cp();
    lab.server.accept(s, param, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
    lab.client.establish(c).unwrap();
    lab.fabric.advance_by(SECOND);
    let handle = lab.server.device.release(s, own).unwrap();
    assert_eq!(lab.server.destroy(s), Err(Errno::ENOENT));
    assert!(lab.server.device.fd(own).is_none());
    let mut other = Side::new(&lab.host);
    let _ = other.fresh_id();
    let (id, channel) = (other.fresh_id(), other.fresh_channel());
    let handle = std::thread::spawn(move || handle).join().unwrap();
    other.device.adopt(id, channel, handle).unwrap();
    other.next(channel).is(id, CmEvent::Established, 0);
    other.disconnect(id).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::Disconnected, 0);
    drop(lab.server);
    other.quiet(channel, SECOND);
}

#[test]
fn a_dropped_handle_destroys_its_id() {
    let mut lab = Lab::new();
    let (_, c, s) = lab.requested();
    let own = lab.server.channel();
    lab.server.migrate(s, lab.cs, own).unwrap();
    drop(lab.server.device.release(s, own).unwrap());
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 28);
}

#[test]
fn release_wants_the_ids_own_channel() {
    let mut lab = Lab::new();
    let (l, _, s) = lab.requested();
    let other = lab.server.channel();
    assert_eq!(lab.server.device.release(s, other).map(|_| ()), Err(Errno::EINVAL));
    assert_eq!(lab.server.device.release(s, lab.cs).map(|_| ()), Err(Errno::EINVAL));
    let never = lab.server.fresh_id();
    assert_eq!(lab.server.device.release(never, other).map(|_| ()), Err(Errno::ENOENT));
    let handle = {
        lab.server.destroy(s).unwrap();
        lab.server.device.release(l, lab.cs).unwrap()
    };
    let far = lab.fabric.host(&[ip("10.0.0.3")]);
    let mut far = Side::new(&far);
    let (id, channel) = (far.fresh_id(), far.fresh_channel());
    assert_eq!(far.device.adopt(id, channel, handle), Err(Errno::EINVAL));
}

#[test]
fn siblings_share_the_ports_of_their_host() {
    let mut lab = Lab::new();
    lab.server.listener(lab.cs, "10.0.0.2:7");
    let mut sibling = lab.server.device.sibling();
    let (id, channel) = (lab.client.fresh_id(), lab.client.fresh_channel());
    use cmid_proto::{Call, PortSpace};
    sibling.call(&Call::OpenChannel { channel }, &[]).unwrap();
    sibling.call(&Call::CreateId { id, channel, port_space: PortSpace::Tcp }, &[]).unwrap();
    let addr = "10.0.0.2:7".parse().unwrap();
    assert_eq!(sibling.call(&Call::Bind { id, addr }, &[]), Err(Errno::EADDRINUSE));
    drop(lab.server);
    assert_eq!(sibling.call(&Call::Bind { id, addr }, &[]), Ok(()));
}

#[test]
fn devices_and_handles_are_send() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<cmid_sim::SimDevice>();
    send::<cmid_sim::SimHandle>();
    send::<Fabric>();
    sync::<Fabric>();
    send::<cmid_sim::Qp>();
    send::<cmid_sim::Mr>();
}
