//! Memory that several registrations share.

use cmid_proto::datapath::{SendWr, prelude::*};
use cmid_sim::{Buffer, Change, SharedBuffer};

use super::windows::ended;
use super::*;
use crate::common::{bytes_at, connected};

fn shared(len: usize) -> SharedBuffer {
    Buffer::from(vec![3; len]).share()
}

#[test]
fn a_change_of_one_registration_leaves_the_others() {
    for rereg in [Rereg::None, Rereg::All] {
        let (env, mut pair) = connected(Config { rereg, ..Config::default() });
        let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
        let memory = shared(64);
        let mut moved = s.pd.register(memory.clone(), RW).unwrap();
        let stays = s.pd.register(memory.clone(), Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
        let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
        let outcome = moved.reregister(Change::default().to_buffer(vec![5; 32]), policy);
        assert!(outcome.result.is_ok() && outcome.buffer.is_some_and(|old| old.len() == 64));
        assert_ne!(moved.addr(), stays.addr());
        let into = c.pd.register(vec![0; 8], RW).unwrap();
        c.qp.post_send(SendWr::read(1, into.sge(0..8), stays.remote(0))).unwrap();
        assert_eq!(ended(&env, &mut c.send_cq).0, cmid_sim::WcStatus::SUCCESS);
        assert_eq!(bytes_at(&into, 0), [3; 8]);
        drop((moved, stays));
        assert_eq!(Buffer::from(memory).into_vec().unwrap(), [3; 64]);
        assert_eq!(env.fabric.counters().freed_in_use, 0);
    }
}

#[test]
fn a_pool_takes_no_memory_that_others_may_register() {
    let (_env, pair) = connected(Config::default());
    let pd = &pair.client_qp.pd;
    let memory = shared(64);
    refused(pd.pool(memory.clone(), 16, Access::empty()).unwrap_err().error, MemoryReason::SharedPool);
    assert_eq!(pd.pool(memory, 16, Access::empty()).unwrap().blocks(), 4, "the last handle");
}

/// On another fabric other memory has the address.
#[test]
fn memory_of_one_fabric_cannot_be_registered_on_another() {
    let [(_one, here), (_other, there)] = [(); 2].map(|()| connected(Config::default()));
    let (memory, pd) = (shared(64), &there.client_qp.pd);
    let first = here.client_qp.pd.register(memory.clone(), RW).unwrap();
    let own = pd.register(vec![5; 64], RW).unwrap();
    assert_eq!(first.addr(), own.addr());
    let ErrorWith { given, error } = pd.register(memory, RW).unwrap_err();
    assert_eq!((error.errno(), given.len()), (Errno::EFAULT, 64));
    drop(first);
    assert_eq!(given.into_vec().unwrap(), [3; 64], "it comes back from its fabric");
    let refused = here.client_qp.pd.pool_with(std::slice::from_ref(pd), vec![7; 64], 16, Access::empty()).unwrap_err();
    assert_eq!((refused.error.errno(), refused.given.into_vec().unwrap()), (Errno::EFAULT, vec![7; 64]));
}
