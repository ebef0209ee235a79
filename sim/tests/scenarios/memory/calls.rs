//! Which calls are made and which are refused, without faults (`semantics` 10.2, 10.3, 10.5; behaviours 80 to 82).

use cmid_proto::datapath::{DataPath, MemoryRegion, ProtectionDomain};
use cmid_sim::memory::RegisterCause;

use super::*;

type Change = cmid_sim::Change;

#[test]
fn qps_and_address_handles_belong_to_a_domain() {
    let mut env = Env::new();
    let pair = env.established_with_qps();
    let (c, client) = (pair.client_qp, pair.client);
    let path = cmid_proto::datapath::AhAttr { grh: Some(Default::default()), port_num: 1, ..Default::default() };
    let ah = c.pd.create_ah(&path).unwrap();
    assert_eq!((c.pd.users(), c.pd.users_at_device()), (2, Some(2)));
    drop(ah);
    // To drop the handle of a QP does not destroy the QP.
    drop(c.qp);
    assert_eq!((c.pd.users(), c.pd.users_at_device()), (1, Some(1)));
    refused(c.pd.dealloc().unwrap_err(), MemoryReason::InUse(1));
    env.client.device.destroy_qp(client).unwrap();
    assert_eq!((c.pd.users(), c.pd.users_at_device()), (0, Some(0)));
    let gone = c.pd.clone();
    c.pd.dealloc().unwrap();
    let again = env.client.device.create_qp(
        cmid_proto::datapath::Attaching::bare(client),
        &gone,
        &c.send_cq,
        &c.recv_cq,
        cmid_sim::Caps::default(),
    );
    assert_eq!(again.map(drop).map_err(Errno::from), Err(Errno::EINVAL));
}

#[test]
fn a_domain_without_handles_lives_as_long_as_its_region() {
    let mut env = Env::new();
    let id = env.client.bound(env.cc, "10.0.0.1:0");
    let mr = env.client.device.alloc_pd(id).unwrap().register([1], RW).unwrap();
    let pd = mr.pd().unwrap();
    assert_eq!((pd.users(), pd.users_at_device()), (1, Some(1)));
    drop(pd);
    let pd = mr.pd().unwrap();
    drop(mr);
    assert_eq!((pd.users(), pd.users_at_device()), (0, Some(0)));
}

#[test]
fn pages_that_were_pinned_for_reading_stay_so() {
    let fixture = MemoryFixture::new(Config { rereg: Rereg::PdAccess, ..Config::default() });
    let policy = Policy { provider: Provider::ChecksFirst, ..Policy::default() };
    let mut mr = fixture.one.register([0; 8], Access::REMOTE_READ).unwrap();
    let ended = mr.reregister(Change::default().to_access(RW), policy);
    failed(ended, "ibv_rereg_mr: ERR_CMD, EACCES; the old registration is valid");
    assert_eq!(mr.reregister(Change::default().to_access(Access::empty()), policy).result, Ok(cmid_sim::Way::InPlace));
    fixture.users([1, 0]);
}

#[test]
fn the_lock_limit_is_a_typed_error_and_leaks_nothing() {
    let fixture = MemoryFixture::new(Config { lock_limit: Some(8192), ..Config::default() });
    let mr = fixture.mr();
    let ErrorWith { given: buffer, error } = fixture.one.register(vec![0; 4097], RW).unwrap_err();
    let cause = Some(RegisterCause::LockLimit { len: 4097, limit: 8192 });
    assert_eq!((buffer.len(), error), (4097, MemoryError::Register { errno: Errno::ENOMEM, cause }));
    fixture.users([1, 0]);
    // The fallback needs both registrations at the same time.
    let mut mr = mr;
    let ended = mr.reregister(Change::default().to_buffer(vec![0; 8192]), ANEW);
    let text = "registering anew, ibv_reg_mr: ENOMEM; the old registration is valid";
    assert_eq!(failed(ended, text).map(|buffer| buffer.len()), Some(8192));
    fixture.users([1, 0]);
    drop(mr);
    assert!(fixture.one.register(vec![0; 8192], RW).is_ok());
}
