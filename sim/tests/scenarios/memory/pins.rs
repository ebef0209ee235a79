//! Work requests pin the regions that they name, until their completions have been polled or their QP is gone.

use cmid_proto::datapath::{SendWr, prelude::*};
use cmid_sim::{Change, Completion, Way};

use super::*;
use crate::common::{Equipment, SECOND, connected};

/// A device that can re-register everything.
fn able() -> Config {
    Config { rereg: Rereg::All, ..Config::default() }
}

fn smaller(mr: &mut Mr) -> Reregistered {
    mr.reregister(Change::default().to_buffer([9]).to_access(RW), ANEW)
}

/// Asserts that a change and a deregistration are refused and that everything comes back.
#[track_caller]
fn pinned(mut mr: Mr) -> Mr {
    let ended = smaller(&mut mr);
    assert_eq!(ended.buffer, Some([9].into()));
    refused(ended.result.unwrap_err(), MemoryReason::InFlight);
    let ErrorWith { given: mr, error } = mr.deregister().unwrap_err();
    refused(error, MemoryReason::InFlight);
    assert_eq!(mr.state(), MrState::Registered);
    mr
}

#[track_caller]
fn free(mut mr: Mr) {
    assert_eq!(smaller(&mut mr).result, Ok(Way::InPlace));
    assert_eq!(mr.deregister().unwrap().buffer, [9]);
}

/// Asserts that the machine and the device count this many users.
#[track_caller]
fn users(pd: &Pd, expected: u32) {
    assert_eq!((pd.users(), pd.users_at_device()), (expected, Some(expected)));
}

#[test]
fn the_completions_of_a_destroyed_qp_pin_while_they_are_there() {
    for (outlive, dropped) in [(false, false), (true, false), (true, true)] {
        let config = Config { rereg: Rereg::All, completions_outlive_qp: outlive, ..Config::default() };
        let (mut env, mut pair) = connected(config);
        let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
        let (from, mut to) = (c.pd.register([1; 8], RW).unwrap(), s.pd.register([2; 8], RW).unwrap());
        let mut never = s.pd.register([2; 8], RW).unwrap();
        s.qp.post_recv(1, to.sge(0..8)).unwrap();
        s.qp.post_recv(2, never.sge(0..8)).unwrap();
        c.qp.post_send(SendWr::send(3, from.sge(0..8))).unwrap();
        env.fabric.advance_by(SECOND);
        let Equipment { qp, recv_cq: mut cq, pd, .. } = pair.server_qp;
        // All are completed, and those that the device has not executed are flushed.
        env.server.device.destroy_qp(pair.new).unwrap();
        (never, to) = (pinned(never), pinned(to));
        drop(qp);
        if outlive {
            (never, to) = (pinned(never), pinned(to));
        }
        if dropped {
            drop((to, never));
            assert_eq!(pd.users(), 2);
            drop(cq);
            assert_eq!(pd.users(), 0, "nobody can poll it");
            continue;
        }
        let mut done = [Completion::default(); 2];
        assert_eq!((cq.poll(&mut done), done[0].wr_id), (Ok(if outlive { 2 } else { 0 }), u64::from(outlive)));
        free(to);
        free(never);
    }
}

#[test]
fn a_dropped_region_that_the_device_keeps_is_tried_again() {
    let (env, mut pair) = connected(able());
    let c = &mut pair.client_qp;
    let here = c.pd.register([1; 8], RW).unwrap();
    env.host.fail_next_deregistration(Errno::EBUSY);
    drop(here);
    users(&c.pd, 2);
    // The next end of an object retries the deregistration.
    drop(c.pd.alloc_mw().unwrap());
    users(&c.pd, 1);
}

#[test]
fn whoever_comes_by_ends_what_only_a_passing_failure_has_left() {
    let (mut env, pair) = connected(able());
    let device = &mut env.client.device;
    let host = &env.host;
    let park = |pd: &cmid_sim::Pd| {
        let here = pd.register([1; 8], RW).unwrap();
        host.fail_next_deregistration(Errno::EBUSY);
        drop(here);
        users(pd, 1);
    };
    let pd = device.alloc_pd(pair.client).unwrap();
    park(&pd);
    assert!(pd.dealloc().is_ok());

    let pd = device.alloc_pd(pair.client).unwrap();
    park(&pd);
    let mut other = pd.register([1; 8], RW).unwrap();
    users(&pd, 1);
    park_again(&pd, host);
    let change = cmid_sim::Change { buffer: None, pd: None, access: Some(RW) };
    let _ = other.reregister(change, Policy::default());
    users(&pd, 1);
    park_again(&pd, host);
    other.deregister().unwrap();
    users(&pd, 0);
    park(&pd);
    drop(pd.clone());
    users(&pd, 0);
}

/// The same beside a live region.
fn park_again(pd: &cmid_sim::Pd, host: &cmid_sim::Host) {
    let here = pd.register([1; 8], RW).unwrap();
    host.fail_next_deregistration(Errno::EBUSY);
    drop(here);
    users(pd, 2);
}

#[test]
fn no_handle_prints_the_memory_of_the_fabric() {
    let (env, pair) = connected(able());
    let c = &pair.client_qp;
    let mr = c.pd.register(vec![171; 100_000], RW).unwrap();
    let mw = c.pd.alloc_mw().unwrap();
    let texts = [
        format!("{mr:?}"),
        format!("{mw:?}"),
        format!("{:?}", c.pd),
        format!("{:?}", c.qp),
        format!("{:?}", c.send_cq),
        format!("{:?}", env.client.device),
        format!("{:?}", env.host),
        format!("{:?}", env.fabric),
    ];
    for text in texts {
        assert!(text.len() < 2000 && !text.contains("171, 171"), "{} bytes: {}", text.len(), &text[..100]);
    }
}

#[test]
fn a_dropped_region_keeps_its_domain() {
    let (mut env, pair) = connected(able());
    let c = pair.client_qp;
    let (mut qp, mut cq, pd) = (c.qp, c.recv_cq, c.pd);
    let here = pd.register([1; 8], RW).unwrap();
    qp.post_recv(1, here.sge(0..8)).unwrap();
    drop(here);
    refused(pd.dealloc().unwrap_err(), MemoryReason::InUse(2));
    drop(pd);
    env.client.device.destroy_qp(pair.client).unwrap();
    drop(qp);
    assert_eq!(cq.poll(&mut [Completion::default()]), Ok(0));
    assert_eq!(env.fabric.counters().freed_in_use, 0);
}
