//! Enhanced connection establishment: what each side tells of its vendor's options.

use cmid_proto::{Call, CmEvent, Device, Ece, Errno, IdKey, Outcome, RejectReason};

use crate::common::{EINVAL, Lab, Side};

const OURS: Ece = Ece { vendor_id: 7, options: 1 };
const THEIRS: Ece = Ece { vendor_id: 7, options: 2 };

impl Side {
    fn set_ece(&mut self, id: IdKey, ece: Ece) -> Outcome {
        self.call(Call::SetEce { id, ece })
    }
}

#[test]
fn row_14_the_options_are_refused() {
    let mut lab = Lab::new();
    let (_, c, s) = lab.requested();
    let call = Call::Reject { id: s, reason: RejectReason::Ece };
    assert_eq!(lab.server.device.call(&call, &[0; 149]), EINVAL);
    lab.server.device.call(&call, b"not yours").unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 35).carries(148, b"not yours");
}

#[test]
fn both_sides_learn_the_others_options() {
    let mut lab = Lab::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    lab.client.set_ece(c, OURS).unwrap();
    assert_eq!(lab.client.device.remote_ece(c), Ok(Ece::default()));
    let (cp, param) = (lab.cp(), lab.cp());
    lab.client.connect(c, cp, &[]).unwrap();
    let s = lab.server.requested(lab.cs, listener);
    assert_eq!(lab.server.device.remote_ece(s), Ok(OURS));
    lab.server.set_ece(s, THEIRS).unwrap();
    lab.server.accept(s, param, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
    assert_eq!(lab.client.device.remote_ece(c), Ok(THEIRS));
}

#[test]
fn who_accepts_without_options_names_the_vendor_all_the_same() {
    let mut lab = Lab::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    lab.client.set_ece(c, OURS).unwrap();
    let (cp, param) = (lab.cp(), lab.cp());
    lab.client.connect(c, cp, &[]).unwrap();
    let s = lab.server.requested(lab.cs, listener);
    lab.server.accept(s, param, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
    assert_eq!(lab.client.device.remote_ece(c), Ok(Ece { options: 0, ..OURS }));
}

#[test]
fn the_library_knows_when_it_does_not_say() {
    let mut lab = Lab::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    assert_eq!(lab.client.set_ece(c, Ece { vendor_id: 0, options: 1 }), EINVAL);
    lab.client.set_ece(c, OURS).unwrap();
    let _qp = lab.client.qp(c);
    assert_eq!(lab.client.set_ece(c, OURS), EINVAL);
    assert_eq!(lab.client.device.remote_ece(c), Err(Errno::EINVAL));
    let never = lab.client.fresh_id();
    assert_eq!(lab.client.device.remote_ece(never), Err(Errno::ENOENT));
    assert_eq!(lab.client.set_ece(never, OURS), Err(Errno::ENOENT));
    // Those of the QP are told, not what was set before: none (`init_ece`).
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    let s = lab.server.requested(lab.cs, listener);
    assert_eq!(lab.server.device.remote_ece(s), Ok(Ece::default()));
}

#[test]
fn a_qp_that_comes_after_the_request_is_of_no_vendor() {
    let mut lab = Lab::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    lab.client.set_ece(c, OURS).unwrap();
    let (cp, param) = (lab.cp(), lab.cp());
    lab.client.connect(c, cp, &[]).unwrap();
    let s = lab.server.requested(lab.cs, listener);
    let _qp = lab.client.qp(c);
    lab.server.accept(s, param, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::ConnectError, -1);
}

#[test]
fn an_answer_names_the_vendor_of_the_request() {
    for (asked, answered) in [(Some(OURS), Ece { options: 3, ..OURS }), (None, Ece { vendor_id: 0, options: 3 })] {
        let mut lab = Lab::new();
        let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
        let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
        asked.map_or(Ok(()), |ece| lab.client.set_ece(c, ece)).unwrap();
        let (cp, param) = (lab.cp(), lab.cp());
        lab.client.connect(c, cp, &[]).unwrap();
        let s = lab.server.requested(lab.cs, listener);
        lab.server.set_ece(s, Ece { vendor_id: 9, options: 3 }).unwrap();
        lab.server.accept(s, param, &[]).unwrap();
        lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
        assert_eq!(lab.client.device.remote_ece(c), Ok(answered));
    }
}
