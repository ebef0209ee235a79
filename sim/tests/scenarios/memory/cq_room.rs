//! A CQ has room for the completions of all work requests of the queues that report to it.

use cmid_proto::datapath::{CompletionQueue, CqRoom, DataPath, ProtectionDomain, QueuePair};
use cmid_sim::{Caps, Completion, Cq, Qp};

use super::*;
use crate::common::connected;

const CAPS: Caps = Caps { max_send_wr: 6, max_recv_wr: 2, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };

/// An id of the client, with its route.
fn id(env: &mut Env) -> IdKey {
    env.client.resolved(env.cc, "10.0.0.2:7")
}

fn create(env: &mut Env, id: IdKey, pd: &Pd, [send, recv]: [&Cq; 2]) -> Result<Qp, Errno> {
    env.client.device.create_qp(cmid_proto::datapath::Attaching::bare(id), pd, send, recv, CAPS).map_err(Errno::from)
}

#[track_caller]
fn reserved(cq: &Cq, expected: u32) {
    assert_eq!(cq.room().reserved(), expected);
}

#[test]
fn a_cq_that_would_overrun_is_refused() {
    let mut env = Env::with(Config::default());
    let (first, second) = (id(&mut env), id(&mut env));
    let pd = env.client.device.alloc_pd(first).unwrap();
    let [mut shared, large] = [8, 14].map(|depth| env.client.device.create_cq(first, depth).unwrap());
    let small = env.client.device.create_cq(first, 5).unwrap();
    // The send queue and the receive queue each count.
    assert_eq!(create(&mut env, first, &pd, [&small, &large]).map(drop), Err(Errno::EOVERFLOW));
    assert_eq!(create(&mut env, first, &pd, [&large, &small]).map(drop), Ok(()));
    assert_eq!(large.room().check(9).unwrap_err().to_string(), OVERRUN);
    env.client.device.destroy_qp(first).unwrap();
    // Both queues on one CQ, and several QPs. A refused QP reserves nothing.
    let qp = create(&mut env, first, &pd, [&shared, &shared]).unwrap();
    assert_eq!(create(&mut env, second, &pd, [&large, &shared]).map(drop), Err(Errno::EOVERFLOW));
    reserved(&large, 0);
    reserved(&small, 0);
    assert_eq!((shared.room().depth(), pd.users()), (8, 1));
    // A QP that is destroyed and has left no completion gives its share back.
    env.client.device.destroy_qp(first).unwrap();
    drop(qp);
    reserved(&shared, 0);
    assert_eq!(create(&mut env, second, &pd, [&shared, &shared]).map(drop), Ok(()));
    assert_eq!(shared.poll(&mut [Completion::default()]), Ok(0));
    assert_eq!(CqRoom::default().depth(), 0);
}

const OVERRUN: &str = "9 more work requests would overrun the CQ of depth 14, which has 6 already";

#[test]
fn the_share_of_a_destroyed_qp_lasts_as_long_as_its_completions() {
    for outlive in [false, true] {
        let (mut env, pair) = connected(Config { completions_outlive_qp: outlive, ..Config::default() });
        let mut c = pair.client_qp;
        let mr = c.pd.register([0; 8], RW).unwrap();
        (0..16).for_each(|wr_id| c.qp.post_recv(wr_id, mr.sge(0..8)).unwrap());
        env.client.disconnect(pair.client).unwrap();
        env.client.device.destroy_qp(pair.client).unwrap();
        drop(c.qp);
        reserved(&c.recv_cq, if outlive { 16 } else { 0 });
        let mut done = [Completion::default(); 15];
        assert_eq!(c.recv_cq.poll(&mut done), Ok(if outlive { 15 } else { 0 }));
        reserved(&c.recv_cq, if outlive { 16 } else { 0 });
        assert_eq!(c.recv_cq.poll(&mut done), Ok(usize::from(outlive)));
        reserved(&c.recv_cq, 0);
    }
}
