//! Enhanced connection establishment: the vendor options that each side sends.

use cmid_proto::{Call, CmEvent, Device, Ece, Errno, IdKey, Outcome};

use crate::common::{EINVAL, Env, Side};

const OURS: Ece = Ece { vendor_id: 7, options: 1 };
const THEIRS: Ece = Ece { vendor_id: 7, options: 2 };
const OTHER_VENDOR: Ece = Ece { vendor_id: 9, options: 3 };

impl Side {
    fn set_ece(&mut self, id: IdKey, ece: Ece) -> Outcome {
        self.call(Call::SetEce { id, ece })
    }
}

/// The request of a client with these options, which is not answered.
fn requested(env: &mut Env, asked: Option<Ece>) -> (IdKey, IdKey) {
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let client = env.client.resolved(env.cc, "10.0.0.2:7");
    asked.map_or(Ok(()), |ece| env.client.set_ece(client, ece)).unwrap();
    assert_eq!(env.client.device.remote_ece(client), Ok(Ece::default()));
    env.connect(client, &[]);
    (client, env.server.requested(env.cs, listener))
}

/// An answer names the vendor of the request, also without options of its own.
#[test]
fn both_sides_learn_the_others_options() {
    for (asked, answer, learned) in [
        (Some(OURS), Some(THEIRS), THEIRS),
        (Some(OURS), None, Ece { options: 0, ..OURS }),
        (Some(OURS), Some(OTHER_VENDOR), Ece { options: 3, ..OURS }),
        (None, Some(OTHER_VENDOR), Ece { vendor_id: 0, options: 3 }),
    ] {
        let mut env = Env::new();
        let (c, s) = requested(&mut env, asked);
        assert_eq!(env.server.device.remote_ece(s), Ok(asked.unwrap_or_default()));
        answer.map_or(Ok(()), |ece| env.server.set_ece(s, ece)).unwrap();
        env.accept(s, &[]);
        env.client.next(env.cc).is(c, CmEvent::ConnectResponse, 0);
        assert_eq!(env.client.device.remote_ece(c), Ok(learned), "{asked:?} {answer:?}");
    }
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
    let (c, s) = requested(&mut env, Some(OURS));
    let _qp = env.client.qp(c);
    env.accept(s, &[]);
    env.client.next(env.cc).is(c, CmEvent::ConnectError, -1);
}
