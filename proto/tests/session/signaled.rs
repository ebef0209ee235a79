//! One send in so many is signaled.

use std::time::Duration;

use cmid_proto::Transport;
use cmid_proto::datapath::{Access, SendWr, Signaled, prelude::*};

use crate::world::{SOON, World};

/// The send queue and the pool have four.
#[test]
fn one_send_in_four_completes_all_of_them_and_a_refused_one_does_not_count() {
    for (one_in, expected) in
        [(4, [false, false, false, true]), (0, [true; 4]), (1, [true; 4]), (2, [false, true, false, true])]
    {
        let mut world = World::connected(Transport::InfiniBand, SOON);
        let [client, server] = &mut world.sides;
        let (receiver, mr) = server.session().attached().unwrap();
        (0..8).for_each(|_| receiver.qp.post_recv(2, mr.sge(0..8)).unwrap());
        let (parts, _) = client.session().attached().unwrap();
        let pool = parts.pd.pool(vec![0; 64], 8, Access::empty()).unwrap();
        let mut signaled = Signaled::one_in(one_in);
        let mut post = |always| signaled.post(&mut parts.qp, SendWr::send(3, pool.take().unwrap()), always);
        assert_eq!([(); 4].map(|()| post(false).unwrap()), expected);
        assert!((0..3).all(|_| post(false).is_err()), "the queue is full");
        world.fabric.advance_by(Duration::from_millis(10));
        let [client, _] = &mut world.sides;
        client.turn(&world.fabric, SOON).unwrap();
        assert_eq!(client.completions.len(), expected.iter().filter(|&&it| it).count());
        let completions = std::mem::take(&mut client.completions);
        let (parts, _) = client.session().attached().unwrap();
        assert_eq!(completions.iter().filter(|it| parts.qp.reclaim(it).is_some()).count(), completions.len());
        assert_eq!(parts.qp.unpolled().sends, 0);
        let mut post = |always| signaled.post(&mut parts.qp, SendWr::send(3, pool.take().unwrap()), always).unwrap();
        assert_eq!([false, true, false].map(&mut post), [one_in < 2, true, one_in < 2]);
    }
}
