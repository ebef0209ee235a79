//! Enhanced connection establishment: the vendor options that each side sends.

use cmid_proto::{Call, CmEvent, Ece};

use crate::common::Env;

#[test]
fn a_qp_that_comes_after_the_request_is_of_no_vendor() {
    let mut env = Env::new();
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let c = env.client.resolved(env.cc, "10.0.0.2:7");
    env.client.call(Call::SetEce { id: c, ece: Ece { vendor_id: 7, options: 1 } }).unwrap();
    env.connect(c, &[]);
    let s = env.server.requested(env.cs, listener);
    let _qp = env.client.qp(c);
    env.accept(s, &[]);
    env.client.next(env.cc).is(c, CmEvent::ConnectError, -1);
}
