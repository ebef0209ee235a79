//! A device with a copy at the poll: received data goes to the address of the work request, without a key check.

use cmid_proto::datapath::{OfPd, PostReason, SendWr, prelude::*};
use cmid_sim::{Completion, WcStatus};

use super::*;
use crate::common::{Pair, SECOND, bytes_at, only, why};

/// Completions outlive their QP, and the memory of a removed device can be deregistered.
fn connected() -> (Env, Pair) {
    let config = Config {
        copy_at_poll: true,
        completions_outlive_qp: true,
        destroy_after_removal: true,
        rereg: Rereg::All,
        ..Config::default()
    };
    crate::common::connected(config)
}

fn bytes(mr: &Mr) -> [u8; 8] {
    bytes_at(mr, 0)
}

/// A message to the server that has arrived and is not polled.
fn received(env: &Env, pair: &mut Pair) -> Mr {
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let from = c.pd.register([7; 8], RW).unwrap();
    let to = s.pd.register([0; 8], RW).unwrap();
    s.qp.post_recv(1, to.sge(0..8)).unwrap();
    c.qp.post_send(SendWr::send(2, from.sge(0..8))).unwrap();
    env.fabric.advance_by(SECOND);
    to
}

#[test]
fn what_has_arrived_is_in_memory_when_it_is_polled() {
    let (env, mut pair) = connected();
    let to = received(&env, &mut pair);
    assert_eq!(bytes(&to), [0; 8]);
    assert_eq!(only(&mut pair.server_qp.recv_cq).byte_len, 8);
    assert_eq!(bytes(&to), [7; 8]);
    // The same for a read. A write of the peer is done by the device, without a poll.
    let c = &mut pair.client_qp;
    let into = c.pd.register([0; 8], RW).unwrap();
    let remote = to.remote(0);
    only(&mut c.send_cq);
    c.qp.post_send(SendWr::read(3, into.sge(0..8), remote)).unwrap();
    env.fabric.advance_by(SECOND);
    assert_eq!(bytes(&into), [0; 8]);
    assert_eq!((only(&mut c.send_cq).byte_len, bytes(&into)), (8, [7; 8]));
    let other = c.pd.register([9; 8], RW).unwrap();
    c.qp.post_send(SendWr::write(4, other.sge(0..8), remote)).unwrap();
    env.fabric.advance_by(SECOND);
    assert_eq!(bytes(&to), [9; 8]);
}

/// Fails if a removal ends the pin: the poll then writes to memory that was given back.
#[test]
fn memory_is_not_given_back_before_the_poll_when_the_device_is_removed() {
    let (env, mut pair) = connected();
    let to = received(&env, &mut pair);
    env.host.remove_device();
    let freed = to.deregister();
    assert_eq!(only(&mut pair.server_qp.recv_cq).status, WcStatus::SUCCESS);
    assert_eq!(env.fabric.counters().copied_to_freed, 0, "use after free");
    let ErrorWith { given: to, error } = freed.unwrap_err();
    refused(error, MemoryReason::InFlight);
    assert_eq!(to.deregister().unwrap().buffer, [7; 8]);
}

/// Fails if such an MR can be posted: nothing pins it.
#[test]
fn memory_of_another_domain_is_not_written_to_by_a_poll() {
    let (mut env, mut pair) = connected();
    let foreign = env.server.device.alloc_pd(pair.new).unwrap();
    let (c, s) = (&mut pair.client_qp, &mut pair.server_qp);
    let from = c.pd.register([7; 8], RW).unwrap();
    let to = foreign.register([0; 8], RW).unwrap();
    let posted = s.qp.post_recv(1, to.sge(0..8));
    c.qp.post_send(SendWr::send(2, from.sge(0..8))).unwrap();
    env.fabric.advance_by(SECOND);
    assert_eq!(to.deregister().unwrap().buffer, [0; 8]);
    let polled = s.recv_cq.poll(&mut [Completion::default()]);
    assert_eq!(env.fabric.counters().copied_to_freed, 0, "use after free");
    assert_eq!((why(posted), polled), (Err(PostReason::OtherPd(OfPd::Mr)), Ok(0)));
}

/// Fails if the destruction of the QP ends the pin while its completions are in the CQ.
#[test]
fn memory_is_not_given_back_before_the_poll_when_the_qp_is_destroyed() {
    let (mut env, mut pair) = connected();
    let to = received(&env, &mut pair);
    env.server.device.destroy_qp(pair.new).unwrap();
    let freed = to.deregister();
    assert_eq!(only(&mut pair.server_qp.recv_cq).status, WcStatus::SUCCESS);
    assert_eq!(env.fabric.counters().copied_to_freed, 0, "use after free");
    let ErrorWith { given: to, error } = freed.unwrap_err();
    refused(error, MemoryReason::InFlight);
    assert_eq!(to.deregister().unwrap().buffer, [7; 8]);
}

/// Dropped memory is freed as soon as possible, also after the removal of its device.
#[test]
fn dropped_memory_is_freed_after_the_poll() {
    let (env, mut pair) = connected();
    let to = received(&env, &mut pair);
    let pd = pair.server_qp.pd.clone();
    drop(to);
    env.host.remove_device();
    assert_eq!(pd.users(), 1);
    only(&mut pair.server_qp.recv_cq);
    assert_eq!((pd.users(), env.fabric.counters().copied_to_freed), (0, 0));
    pd.dealloc().unwrap();
}
