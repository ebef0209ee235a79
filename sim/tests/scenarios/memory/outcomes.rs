//! The effects of each outcome of a re-registration (`semantics` 10.4 and 10.6), and of the fallback.

use cmid_proto::datapath::{MemoryRegion, ProtectionDomain};
use cmid_sim::memory::Code;
use cmid_sim::{Change, Left, ReregFault, Way};

use super::*;

const IO: Errno = Errno::EIO;

fn all(fixture: &MemoryFixture) -> Change {
    Change::default().to_buffer(vec![2; 50]).to_pd(fixture.two.clone()).to_access(Access::LOCAL_WRITE)
}

/// The driver fails in the next re-registration.
fn fail(fixture: &MemoryFixture, errno: Errno, left: Left) {
    fixture.env.host.fail_next_reregistration(ReregFault { code: Code::Cmd, errno, left });
}

/// The fallback keeps the buffer in doubt, and lets the PD in doubt go with the old registration.
#[test]
fn a_region_in_doubt_that_is_registered_anew_keeps_the_other_buffer() {
    let fixture = MemoryFixture::able();
    let mut mr = fixture.mr();
    fail(&fixture, Errno::EINVAL, Left::New);
    assert_eq!(mr.reregister(all(&fixture), Policy::default()).buffer, None);
    let to_two = || Change::default().to_pd(fixture.two.clone());
    refused(mr.reregister(to_two(), ANEW).result.unwrap_err(), MemoryReason::InDoubt);
    fail(&fixture, Errno::EOPNOTSUPP, Left::Old);
    let anew = mr.reregister(Change::default().to_access(RW), ANEW);
    assert_eq!((anew.result, anew.buffer), (Ok(Way::Anew), None));
    fixture.users([1, 0]);
    assert_eq!(mr.reregister(to_two(), ANEW).result, Ok(Way::InPlace));
    fixture.users([0, 1]);
    assert_eq!(mr.deregister().unwrap(), memory::Returned { buffer: [1; 100].into(), other: Some([2; 50].into()) });
    fixture.users([0, 0]);
}

#[test]
fn a_driver_that_mixes_up_domains_leaves_one_busy() {
    let fixture = MemoryFixture::able();
    let mut mr = fixture.mr();
    fail(&fixture, IO, Left::NeitherAndPdSwitched);
    let ended = mr.reregister(all(&fixture), Policy::default());
    assert_eq!(failed(ended, "ibv_rereg_mr: ERR_CMD, EIO; the MR can only be deregistered"), None);
    mr.deregister().unwrap();
    // The machines count correctly; the device still counts a user.
    assert_eq!((fixture.one.users(), fixture.one.users_at_device()), (0, Some(1)));
    assert_eq!(fixture.one.dealloc(), Err(MemoryError::Dealloc(Errno::EBUSY)));
    assert_eq!(fixture.one.state(), cmid_sim::PdState::Live);
    fixture.two.dealloc().unwrap();
}

/// Except where memory is at stake, of the process or of the kernel: the new buffer and the use of the new PD are kept.
#[test]
fn a_driver_that_checks_first_is_believed() {
    let policy = Policy { provider: Provider::ChecksFirst, ..Policy::default() };
    for left in [Left::Old, Left::Neither] {
        let fixture = MemoryFixture::able();
        let mut mr = fixture.mr();
        fail(&fixture, IO, left);
        let ended = mr.reregister(all(&fixture), policy);
        // If the driver does not check first, the state of the region is wrong, but no memory is at risk.
        assert_eq!(failed(ended, "ibv_rereg_mr: ERR_CMD, EIO; the old registration is valid"), None);
        assert_eq!((mr.state(), mr.access()), (MrState::Registered, Some(RW)));
        let moved = mr.reregister(Change::default().to_access(Access::empty()), policy).result;
        let lost = "ibv_rereg_mr: ERR_CMD, EINVAL; the old registration is valid";
        let expected = if left == Left::Old { Ok(Way::InPlace) } else { Err(lost.to_owned()) };
        assert_eq!(moved.map_err(|error| error.to_string()), expected);
        assert_eq!(
            fixture.two.dealloc().unwrap_err().to_string(),
            "refused: deallocate a PD while live: objects use it: 1"
        );
        mr.deregister().unwrap();
        fixture.users([0, 0]);
    }
}
