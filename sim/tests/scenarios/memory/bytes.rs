//! Slices, flags and views of registered memory.

use cmid_proto::datapath::{MemoryRegion, ProtectionDomain};
use cmid_sim::Change;

use super::*;

#[test]
fn flags_are_aligned_and_inside() {
    let fixture = MemoryFixture::able();
    let mut mr = fixture.one.register(vec![0; 100], RW).unwrap();
    mr.store_release(8, 7_u64).unwrap();
    mr.store_release(4, u32::MAX).unwrap();
    assert_eq!(
        (mr.load_acquire::<u64>(8), mr.load_acquire::<u32>(4), mr.load_acquire::<u32>(0)),
        (Ok(7), Ok(!0), Ok(0))
    );
    for offset in [4, 1, 96, 100, usize::MAX] {
        assert_eq!(mr.load_acquire::<u64>(offset), Err(Errno::EINVAL), "{offset}");
        assert_eq!(mr.store_release(offset, 1_u64), Err(Errno::EINVAL), "{offset}");
    }
    assert_eq!((mr.load_acquire::<u32>(96), mr.load_acquire::<u32>(98)), (Ok(0), Err(Errno::EINVAL)));
    let loaded = [8, 4, 96].map(|offset| mr.load_relaxed::<u64>(offset));
    assert_eq!((loaded, mr.len()), ([Ok(7), Err(Errno::EINVAL), Err(Errno::EINVAL)], 100));
    let read = [4, 99, 100].map(|offset| {
        let mut byte = [0];
        mr.read(offset, &mut byte).map(|()| byte)
    });
    assert_eq!(read, [Ok([0xff]), Ok([0]), Err(Errno::EINVAL)]);
}

#[test]
fn slices_follow_the_rights_until_the_device_goes() {
    let fixture = MemoryFixture::able();
    let mut mr = fixture.mr();
    for (access, expected) in [
        (RW, Err(Errno::EACCES)),
        (Access::LOCAL_WRITE | Access::REMOTE_ATOMIC, Err(Errno::EACCES)),
        (Access::LOCAL_WRITE | Access::MW_BIND, Err(Errno::EACCES)),
        (Access::MW_BIND | Access::REMOTE_READ, Ok(())),
    ] {
        let changed = mr.reregister(Change::default().to_access(access), Policy::default());
        assert_eq!(changed.result, Ok(cmid_sim::Way::InPlace));
        assert_eq!((mr.slice().map(drop), mr.slice_mut().map(drop)), (expected, expected), "{access:?}");
    }
    fixture.env.host.remove_device();
    assert_eq!(mr.slice().map(drop), Err(Errno::EINVAL));
}
