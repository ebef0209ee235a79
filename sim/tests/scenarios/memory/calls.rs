//! Which calls are made and which are refused, without faults (`semantics` 10.2, 10.3, 10.5; behaviours 80 to 82).

use cmid_proto::datapath::{MemoryRegion, ProtectionDomain};
use cmid_sim::memory::RegisterCause;

use super::*;

type Change = cmid_sim::Change;

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
