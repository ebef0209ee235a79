//! Enhanced connection establishment: the vendor options that each side sends.

use cmid_proto::{Call, CmEvent, Device, Ece, Errno, IdKey, Outcome};

use crate::common::{EINVAL, Env, Side};

const OURS: Ece = Ece { vendor_id: 7, options: 1 };
const THEIRS: Ece = Ece { vendor_id: 7, options: 2 };

impl Side {
    fn set_ece(&mut self, id: IdKey, ece: Ece) -> Outcome {
        self.call(Call::SetEce { id, ece })
    }
}

#[test]
fn both_sides_learn_the_others_options() {
    let mut env = Env::new();
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    env.client.set_ece(c, OURS).unwrap();
    assert_eq!(env.client.device.remote_ece(c), Ok(Ece::default()));
    env.connect(c, &[]);
    let s = env.server.requested(env.cs, listener);
    assert_eq!(env.server.device.remote_ece(s), Ok(OURS));
    env.server.set_ece(s, THEIRS).unwrap();
    env.accept(s, &[]);
    env.client.next(env.cc).is(c, CmEvent::ConnectResponse, 0);
    assert_eq!(env.client.device.remote_ece(c), Ok(THEIRS));
}

#[test]
fn who_accepts_without_options_names_the_vendor_all_the_same() {
    let mut env = Env::new();
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    env.client.set_ece(c, OURS).unwrap();
    env.connect(c, &[]);
    let s = env.server.requested(env.cs, listener);
    env.accept(s, &[]);
    env.client.next(env.cc).is(c, CmEvent::ConnectResponse, 0);
    assert_eq!(env.client.device.remote_ece(c), Ok(Ece { options: 0, ..OURS }));
}

#[test]
fn the_library_knows_when_it_does_not_say() {
    let mut env = Env::new();
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    assert_eq!(env.client.set_ece(c, Ece { vendor_id: 0, options: 1 }), EINVAL);
    env.client.set_ece(c, OURS).unwrap();
    let _qp = env.client.qp(c);
    assert_eq!(env.client.set_ece(c, OURS), EINVAL);
    assert_eq!(env.client.device.remote_ece(c), Err(Errno::EINVAL));
    let never = env.client.fresh_id();
    assert_eq!(env.client.device.remote_ece(never), Err(Errno::ENOENT));
    assert_eq!(env.client.set_ece(never, OURS), Err(Errno::ENOENT));
    // The options of the QP are sent, not those set before: none (`init_ece`).
    env.connect(c, &[]);
    let s = env.server.requested(env.cs, listener);
    assert_eq!(env.server.device.remote_ece(s), Ok(Ece::default()));
}

#[test]
fn a_qp_that_comes_after_the_request_is_of_no_vendor() {
    let mut env = Env::new();
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    env.client.set_ece(c, OURS).unwrap();
    env.connect(c, &[]);
    let s = env.server.requested(env.cs, listener);
    let _qp = env.client.qp(c);
    env.accept(s, &[]);
    env.client.next(env.cc).is(c, CmEvent::ConnectError, -1);
}

#[test]
fn an_answer_names_the_vendor_of_the_request() {
    for (asked, answered) in [(Some(OURS), Ece { options: 3, ..OURS }), (None, Ece { vendor_id: 0, options: 3 })] {
        let mut env = Env::new();
        let listener = env.server.listener(env.cs, "10.0.0.2:7");
        let c = env.client.resolved(env.cc, "10.0.0.2:7");
        asked.map_or(Ok(()), |ece| env.client.set_ece(c, ece)).unwrap();
        env.connect(c, &[]);
        let s = env.server.requested(env.cs, listener);
        env.server.set_ece(s, Ece { vendor_id: 9, options: 3 }).unwrap();
        env.accept(s, &[]);
        env.client.next(env.cc).is(c, CmEvent::ConnectResponse, 0);
        assert_eq!(env.client.device.remote_ece(c), Ok(answered));
    }
}
