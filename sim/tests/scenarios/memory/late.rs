//! What the device copies later than it checks the key: only a deregistration waits, and on iWARP a change of the QP.

use cmid_proto::datapath::{SendWr, prelude::*};
use cmid_sim::{Change, Remote, Returned, Way, WcStatus};

use super::*;
use crate::common::{Pair, SECOND, bytes_at, connected, only};
use crate::iwarp;

const OLD: [u8; 8] = [1; 8];
const NEW: [u8; 8] = [2; 8];

/// A region that the peer has a packet for: its key is checked, and it is not copied.
fn under_way(rereg: Rereg, buffer: impl Into<Buffer>) -> (Env, Pair, Mr) {
    let config = Config { rereg, copies_late: true, ..Config::default() };
    let latency = config.latency;
    let (env, mut pair) = connected(config);
    let here = pair.client_qp.pd.register(NEW, Access::empty()).unwrap();
    let there = pair.server_qp.pd.register(buffer, RW).unwrap();
    let to = there.remote(0);
    pair.client_qp.qp.post_send(SendWr::write(1, here.sge(0..8), to)).unwrap();
    env.fabric.advance_by(latency);
    assert_eq!(bytes(&there), OLD);
    (env, pair, there)
}

fn bytes(mr: &Mr) -> [u8; 8] {
    bytes_at(mr, 0)
}

/// The packet is copied, if it was not. The peer has its completion.
#[track_caller]
fn later(env: &Env, pair: &mut Pair) {
    env.fabric.advance_by(SECOND);
    let done = only(&mut pair.client_qp.send_cq);
    assert_eq!((done.wr_id, done.status), (1, WcStatus::SUCCESS));
    assert_eq!(env.fabric.counters().copied_to_freed, 0);
}

fn owned() -> Change {
    Change::default().to_access(Access::LOCAL_WRITE)
}

/// A program that had a slice would see it change.
#[test]
fn a_packet_arrives_after_its_right_was_taken_away_in_place_and_no_slice_is_given() {
    for rereg in [Rereg::PdAccess, Rereg::All] {
        let (env, mut pair, mut mr) = under_way(rereg, OLD);
        assert_eq!(mr.reregister(owned(), Policy::default()).result, Ok(Way::InPlace));
        assert_eq!((mr.access(), bytes(&mr)), (Some(Access::LOCAL_WRITE), OLD));
        let refused = |mr: &mut Mr| [mr.slice().map(drop), mr.slice_mut().map(drop)];
        assert_eq!(refused(&mut mr), [Err(Errno::EACCES); 2]);
        later(&env, &mut pair);
        assert_eq!(bytes(&mr), NEW);
        // Nothing has told this side so.
        assert_eq!(refused(&mut mr), [Err(Errno::EACCES); 2]);
        assert_eq!(mr.deregister().unwrap().buffer, NEW);
    }
}

#[test]
fn a_deregistration_waits_for_the_packet() {
    let (env, mut pair, mr) = under_way(Rereg::PdAccess, OLD);
    assert_eq!(mr.deregister().unwrap().buffer, NEW);
    later(&env, &mut pair);

    // So does the fallback.
    let (env, mut pair, mut mr) = under_way(Rereg::None, OLD);
    assert_eq!(mr.reregister(owned(), ANEW).result, Ok(Way::Anew));
    assert_eq!(mr.slice_mut().map(|mut slice| slice.copy_within(4.., 0)), Ok(()));
    assert_eq!(mr.slice().map(|slice| slice.to_vec()), Ok(NEW.to_vec()));
    later(&env, &mut pair);
}

/// The peer gets what was there when it was exchanged.
#[test]
fn a_deregistration_waits_for_the_atomic_operation() {
    let config = Config { copies_late: true, ..Config::default() };
    let latency = config.latency;
    let (env, mut pair) = connected(config);
    let here = pair.client_qp.pd.register(NEW, Access::LOCAL_WRITE).unwrap();
    let there = pair.server_qp.pd.register(OLD, RW | Access::REMOTE_ATOMIC).unwrap();
    let to = there.remote(0);
    let swap = SendWr::compare_swap(1, here.sge(0..8), to, u64::from_ne_bytes(OLD), u64::from_ne_bytes(NEW));
    pair.client_qp.qp.post_send(swap).unwrap();
    env.fabric.advance_by(latency);
    assert_eq!(bytes(&there), OLD);
    assert_eq!(there.deregister().unwrap().buffer, NEW);
    later(&env, &mut pair);
    assert_eq!(bytes(&here), OLD);
}

/// siw takes the memory out of its table and waits for no copy.
#[test]
fn on_iwarp_a_change_of_the_qps_waits_after_each_deregistration() {
    for how in ["deregistered", "registered anew", "dropped"] {
        let config = Config { copies_late: true, ..Config::default() };
        let latency = config.latency;
        let mut env = iwarp::env_with(config);
        let (_ids, [mut c, s]) = iwarp::established(&mut env);
        let here = c.pd.register(NEW, Access::empty()).unwrap();
        let mut there = s.pd.register(OLD, RW).unwrap();
        let to = there.remote(0);
        c.qp.post_send(SendWr::write(1, here.sge(0..8), to)).unwrap();
        env.fabric.advance_by(latency);
        assert_eq!(bytes(&there), OLD);
        match how {
            "deregistered" => assert_eq!(there.deregister().unwrap().buffer, NEW),
            "registered anew" => {
                assert_eq!(there.reregister(owned(), ANEW).result, Ok(Way::Anew));
                assert_eq!(there.slice().map(|slice| slice.to_vec()), Ok(NEW.to_vec()));
            }
            _ => drop(there),
        }
        env.fabric.advance_by(SECOND);
        assert_eq!(env.fabric.counters().copied_to_freed, 0, "{how}");
    }
}

#[test]
fn memory_that_is_replaced_in_place_comes_back_with_the_deregistration() {
    let (env, mut pair, mut mr) = under_way(Rereg::All, OLD);
    let Reregistered { result, buffer } = mr.reregister(owned().to_buffer([3; 8]), Policy::default());
    assert_eq!((result, buffer, bytes(&mr)), (Ok(Way::InPlace), None, [3; 8]));
    let Returned { buffer, other } = mr.deregister().unwrap();
    assert!(buffer == [3; 8] && other.is_some_and(|other| other == NEW));
    later(&env, &mut pair);
}

#[test]
fn memory_that_is_shared_is_the_others_after_the_deregistration() {
    let shared = Buffer::from(OLD).share();
    let (env, mut pair, mut mr) = under_way(Rereg::PdAccess, shared.clone());
    let mut other = pair.server_qp.pd.register(shared, Access::LOCAL_WRITE).unwrap();
    assert_eq!(mr.reregister(owned(), Policy::default()).result, Ok(Way::InPlace));
    assert_eq!(other.slice().map(drop), Err(Errno::EBUSY));
    drop(mr);
    assert_eq!(other.slice().map(|slice| slice.to_vec()), Ok(NEW.to_vec()));
    later(&env, &mut pair);
}

/// A block that peers could write to by a window has other keys, and all bytes of the peer, when it is its owner's again.
#[test]
fn a_block_comes_back_after_the_packet_that_its_window_has_let_in() {
    for how in ["invalidated", "deallocated", "dropped"] {
        let config = Config { copies_late: true, ..Config::default() };
        let latency = config.latency;
        let (env, mut pair) = connected(config);
        let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
        let here = c.pd.register(NEW, Access::empty()).unwrap();
        let pool = s.pd.pool(vec![1; 8], 8, Access::MW_BIND).unwrap();
        let block = pool.take().unwrap();
        let before = block.remote(0);
        let mut window = s.pd.alloc_mw().unwrap();
        s.qp.post_bind_block(1, &mut window, block, Access::REMOTE_WRITE).unwrap();
        env.fabric.advance_by(SECOND);
        only(&mut s.send_cq);
        let to = Remote { rkey: window.rkey(), ..before };
        c.qp.post_send(SendWr::write(1, here.sge(0..8), to)).unwrap();
        env.fabric.advance_by(latency);
        match how {
            "invalidated" => {
                s.qp.post_invalidate(2, &mut window).unwrap();
                env.fabric.advance_by(latency * 2);
                only(&mut s.send_cq);
                drop(window.reclaim().unwrap());
            }
            "deallocated" => drop(window.dealloc().unwrap()),
            _ => drop(window),
        }
        let block = pool.take().unwrap();
        assert_ne!(block.remote(0).rkey, before.rkey, "{how}");
        assert_eq!(block[..], NEW, "{how}");
        later(&env, &mut pair);
        assert_eq!(block[..], NEW, "{how}");
    }
}

/// As with `cmid-verbs`: while the bind is not polled its block cannot be registered anew, and later nobody asks.
#[test]
fn a_block_of_a_bind_in_flight_comes_back_with_the_qp() {
    for copies_late in [false, true] {
        let (mut env, pair) = connected(Config { copies_late, ..Config::default() });
        let mut s = pair.server_qp;
        let pool = s.pd.pool(vec![1; 8], 8, Access::MW_BIND).unwrap();
        env.server.device.destroy_qp(pair.new).unwrap();
        let mut window = s.pd.alloc_mw().unwrap();
        s.qp.post_bind_block(1, &mut window, pool.take().unwrap(), Access::REMOTE_WRITE).unwrap();
        let parts = window.dealloc().unwrap().len();
        assert_eq!((parts, pool.available()), if copies_late { (0, 0) } else { (1, 1) });
        env.fabric.advance_by(SECOND);
        assert_eq!(only(&mut s.send_cq).status, WcStatus::WR_FLUSH_ERR);
        drop(s.pd.alloc_mw().unwrap());
        assert_eq!(pool.available(), usize::from(!copies_late));
        drop(s.qp);
        drop(s.pd.alloc_mw().unwrap());
        assert_eq!(pool.available(), 1);
    }
}
