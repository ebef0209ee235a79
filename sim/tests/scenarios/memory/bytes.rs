//! Slices, flags and views of registered memory.

use cmid_proto::datapath::{CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, SendWr};
use cmid_sim::{Change, Completion};

use super::*;
use crate::common::SECOND;

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
    let view = mr.view();
    assert_eq!((view.word(8), view.word(4), view.word(96), view.len()), (Some(7), None, None, 100));
    assert_eq!((view.byte(4), view.byte(99), view.byte(100)), (Some(0xff), Some(0), None));
}

#[test]
fn slices_are_there_while_nothing_else_can_write() {
    let mut env = Env::with(Config { rereg: Rereg::All, ..Config::default() });
    let mut pair = env.established_with_qps();
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let mut from = c.pd.register([1; 8], Access::empty()).unwrap();
    let mut to = s.pd.register([0; 8], Access::LOCAL_WRITE).unwrap();
    from.slice_mut().unwrap().copy_from_slice(&[5; 8]);
    s.qp.post_recv(1, to.sge(0..8)).unwrap();
    c.qp.post_send(SendWr::send(2, from.sge(0..8))).unwrap();
    let busy = |mr: &mut Mr| assert_eq!(mr.slice().map(drop), Err(Errno::EBUSY));
    busy(&mut from);
    busy(&mut to);
    env.fabric.advance_by(SECOND);
    busy(&mut to);
    let mut one = [Completion::default()];
    assert_eq!((s.recv_cq.poll(&mut one), c.send_cq.poll(&mut one)), (Ok(1), Ok(1)));
    assert_eq!(to.slice().unwrap()[..], [5; 8]);
    assert_eq!(from.slice_mut().unwrap()[..], [5; 8]);
    // No slice is given of memory that a peer may write to, directly or through a window.
    let bindable = Access::LOCAL_WRITE | Access::MW_BIND;
    for (access, expected) in [
        (RW, Err(Errno::EACCES)),
        (Access::LOCAL_WRITE | Access::REMOTE_ATOMIC, Err(Errno::EACCES)),
        (bindable, Err(Errno::EACCES)),
        (Access::MW_BIND | Access::REMOTE_READ, Ok(())),
    ] {
        assert_eq!(
            to.reregister(Change::default().to_access(access), Policy::default()).result,
            Ok(cmid_sim::Way::InPlace)
        );
        assert_eq!((to.slice().map(drop), to.slice_mut().map(drop)), (expected, expected), "{access:?}");
    }
    env.host.remove_device();
    assert_eq!(to.slice().map(drop), Err(Errno::EINVAL));
}
