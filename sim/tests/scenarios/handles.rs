//! Moving ids between devices, and the ends of handles, devices and fabrics.

use cmid_proto::{CmEvent, Device, Errno, Pollable};
use cmid_sim::Fabric;

use crate::common::{Env, Side, ip};
use crate::refusals::requested;

#[test]
fn a_dropped_handle_destroys_its_id() {
    let (mut env, c, s) = requested();
    let own = env.server.channel();
    env.server.migrate(s, env.cs, own).unwrap();
    drop(env.server.device.release(s, own).unwrap());
    assert_eq!(env.server.destroy(s), Err(Errno::ENOENT));
    assert!(env.server.device.fd(own).is_none());
    env.client.next(env.cc).is(c, CmEvent::Rejected, 28);
}

#[test]
fn release_wants_the_ids_own_channel() {
    let mut env = Env::new();
    let (l, _, s) = env.requested();
    let other = env.server.channel();
    assert_eq!(env.server.device.release(s, other).map(|_| ()), Err(Errno::EINVAL));
    assert_eq!(env.server.device.release(s, env.cs).map(|_| ()), Err(Errno::EINVAL));
    let never = env.server.fresh_id();
    assert_eq!(env.server.device.release(never, other).map(|_| ()), Err(Errno::ENOENT));
    let handle = {
        env.server.destroy(s).unwrap();
        env.server.device.release(l, env.cs).unwrap()
    };
    let far = env.fabric.host(&[ip("10.0.0.3")]);
    let mut far = Side::new(&far);
    let (id, channel) = (far.fresh_id(), far.fresh_channel());
    assert_eq!(far.device.adopt(id, channel, handle), Err(Errno::EINVAL));
}

#[test]
fn siblings_share_the_ports_of_their_host() {
    let mut env = Env::new();
    env.server.listener(env.cs, "10.0.0.2:7");
    let mut sibling = env.server.device.sibling();
    let (id, channel) = (env.client.fresh_id(), env.client.fresh_channel());
    use cmid_proto::{Call, PortSpace};
    sibling.call(&Call::OpenChannel { channel }, &[]).unwrap();
    sibling.call(&Call::CreateId { id, channel, port_space: PortSpace::Tcp }, &[]).unwrap();
    let addr = "10.0.0.2:7".parse().unwrap();
    assert_eq!(sibling.call(&Call::Bind { id, addr }, &[]), Err(Errno::EADDRINUSE));
    drop(env.server);
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
    send::<(cmid_sim::Pd, cmid_sim::Mr, cmid_sim::Mw)>();
    sync::<(cmid_sim::Pd, cmid_sim::Mr, cmid_sim::Mw)>();
}

/// On another fabric everything has the same numbers.
#[test]
fn an_id_of_another_fabric_is_not_adopted() {
    let (mut env, c, s) = requested();
    let own = env.server.channel();
    env.server.migrate(s, env.cs, own).unwrap();
    let handle = env.server.device.release(s, own).unwrap();
    let (mut far, ..) = requested();
    let (id, channel) = (far.server.fresh_id(), far.server.fresh_channel());
    assert_eq!(far.server.device.adopt(id, channel, handle), Err(Errno::EINVAL));
    // It is destroyed.
    env.client.next(env.cc).is(c, CmEvent::Rejected, 28);
}
