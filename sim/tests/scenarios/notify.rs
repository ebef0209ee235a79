//! `rdma_notify`: data shows that the peer has the answer, before its confirmation does.

use std::time::Duration;

use cmid_proto::{CmEvent, IdKey};

use crate::common::{Env, SECOND};

/// The server has accepted, and data has confirmed the connection; the client has read the answer.
fn notified(env: &mut Env) -> (IdKey, IdKey) {
    let (_, c, s) = env.requested();
    env.accept(s, &[]);
    env.client.next(env.cc).is(c, CmEvent::ConnectResponse, 0);
    assert_eq!(env.server.notify(s), Ok(()));
    env.server.next(env.cs).is(s, CmEvent::Established, 0).carries(0, &[]);
    (c, s)
}

#[test]
fn a_reject_may_follow() {
    let mut env = Env::new();
    let (c, s) = notified(&mut env);
    env.client.reject(c, b"no").unwrap();
    env.server.next(env.cs).is(s, CmEvent::Rejected, 28).carries(148, b"no");
}

#[test]
fn a_disconnect_waits_for_the_peers_confirmation() {
    let mut env = Env::new();
    let (c, s) = notified(&mut env);
    env.server.disconnect(s).unwrap();
    // The client has not confirmed, so it ignores the disconnect.
    env.client.quiet(env.cc, SECOND);
    assert_eq!(env.client.establish(c), Ok(()));
    let (seen, waited) = env.client.next_timed(env.cc);
    seen.is(c, CmEvent::Disconnected, 0);
    assert!((Duration::from_secs(3)..Duration::from_millis(3200)).contains(&waited), "4.1 s in all: {waited:?}");
    env.client.disconnect(c).unwrap();
    env.server.next(env.cs).is(s, CmEvent::Disconnected, 0);
    env.server.next(env.cs).is(s, CmEvent::TimewaitExit, 0);
}
