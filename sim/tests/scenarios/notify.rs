//! `rdma_notify`: data shows that the peer has the answer, before its confirmation does.

use std::time::Duration;

use cmid_proto::{CmEvent, Errno, IdKey};

use crate::common::{EINVAL, Lab, SECOND};

/// The server has accepted and has heard from data that the connection stands; the client has read the answer.
fn notified(lab: &mut Lab) -> (IdKey, IdKey) {
    let (_, c, s) = lab.requested();
    let param = lab.cp();
    lab.server.accept(s, param, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
    assert_eq!(lab.server.notify(s), Ok(()));
    lab.server.next(lab.cs).is(s, CmEvent::Established, 0).carries(0, &[]);
    (c, s)
}

#[test]
fn row_76_notify() {
    let mut lab = Lab::new();
    let (l, c, s) = lab.requested();
    assert_eq!(lab.server.notify(l), EINVAL);
    assert_eq!(lab.server.notify(s), EINVAL);
    assert_eq!(lab.client.notify(c), EINVAL);
    let param = lab.cp();
    lab.server.accept(s, param, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
    assert_eq!(lab.client.notify(c), EINVAL);
    assert_eq!(lab.server.notify(s), Ok(()));
    lab.server.next(lab.cs).is(s, CmEvent::Established, 0);
    assert_eq!(lab.server.notify(s), Err(Errno::EISCONN));
    lab.client.establish(c).unwrap();
    lab.server.quiet(lab.cs, SECOND * 100);
    lab.client.disconnect(c).unwrap();
    lab.server.next(lab.cs).is(s, CmEvent::Disconnected, 0);
    assert_eq!(lab.server.notify(s), EINVAL);
}

#[test]
fn a_reject_may_follow() {
    let mut lab = Lab::new();
    let (c, s) = notified(&mut lab);
    lab.client.reject(c, b"no").unwrap();
    lab.server.next(lab.cs).is(s, CmEvent::Rejected, 28).carries(148, b"no");
}

#[test]
fn a_disconnect_waits_for_the_peers_confirmation() {
    let mut lab = Lab::new();
    let (c, s) = notified(&mut lab);
    lab.server.disconnect(s).unwrap();
    // The client has not confirmed: it takes no notice.
    lab.client.quiet(lab.cc, SECOND);
    assert_eq!(lab.client.establish(c), Ok(()));
    let (seen, waited) = lab.client.next_timed(lab.cc);
    seen.is(c, CmEvent::Disconnected, 0);
    assert!((Duration::from_secs(3)..Duration::from_millis(3200)).contains(&waited), "4.1 s in all: {waited:?}");
    lab.client.disconnect(c).unwrap();
    lab.server.next(lab.cs).is(s, CmEvent::Disconnected, 0);
    lab.server.next(lab.cs).is(s, CmEvent::TimewaitExit, 0);
}
