//! On the simulated fabric.

use std::net::{IpAddr, Ipv4Addr};

use cmid_proto::Errno;

use super::*;

const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2)), 7475);

#[test]
fn a_deposed_leader_is_fenced_in_the_way_that_the_device_can() {
    let (ib, iwarp) = (Transport::InfiniBand, Transport::Iwarp);
    for (can, transport) in [(Way::InPlace, ib), (Way::Anew, ib), (Way::InPlace, iwarp), (Way::Anew, iwarp)] {
        let host = host(ADDRESS, can, transport);
        run(|| Ok(host.device()), ADDRESS, can).expect("A is fenced");
    }
    let host = host(ADDRESS, Way::Anew, Transport::InfiniBand);
    let error = run(|| Ok(host.device()), ADDRESS, Way::InPlace).expect_err("the device cannot");
    assert_eq!(error.to_string(), "re-registered Anew, not InPlace");
}

#[test]
fn a_failure_to_depose_leaves_the_old_key_good_for_writing() {
    let host = host(ADDRESS, Way::Anew, Transport::InfiniBand);
    let mut listener = Listener::bind(host.device(), ADDRESS).expect("a listener");
    let (mut a, mut member) = join('A', host.device(), &mut listener, ADDRESS).expect("a connection");
    let mut free = member.lane.remote(0);

    // The new registration succeeds; the deregistration of the old one fails.
    host.fail_next_deregistration(Errno::EBUSY);
    let error = member.depose(Way::Anew).expect_err("the old registration cannot be deregistered");
    assert!(format!("{error:#}").starts_with("A is NOT fenced"), "{error:#}");
    assert!(a.replicate("x = 3; ", &mut free).expect("a status"), "the old key is good");
    member.check(&["x = 3; "]).expect("it was written");

    member.depose(Way::Anew).expect("depose");
    assert!(!a.replicate("x = 4; ", &mut free).expect("a status"), "A is fenced");
    member.check(&["x = 3; "]).expect("nothing more was written");
    together(|| a.leave(), || member.release()).expect("a disconnect");
}
