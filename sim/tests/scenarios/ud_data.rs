//! Datagrams between QPs.

use std::time::Duration;

use cmid_proto::datapath::{AhAttr, GlobalRoute, OfPd, PostReason, SendWr, prelude::*};
use cmid_proto::{ConnParam, Datagram, Errno, IdKey, PortSpace};
use cmid_sim::{Access, Completion, Config, Cq, Fabric, Flavour, GRH_LEN, Latency, Mr, QpState, Rule, To, WcStatus};

use crate::common::{Env, Equipment, SECOND, Side, completions, ip, why};

fn one(cq: &mut Cq) -> Option<Completion> {
    let mut all = completions(cq);
    assert!(all.len() <= 1, "{all:?}");
    all.pop()
}

/// Two sides of a service that was looked up, each with a QP and some memory.
struct Talk {
    env: Env,
    client: Equipment,
    server: Equipment,
    server_id: IdKey,
    found: Datagram,
    here: Mr,
    there: Mr,
}

impl Talk {
    fn new() -> Talk {
        Talk::with(Config::default())
    }

    fn with(config: Config) -> Talk {
        let mut env = Env::with(config);
        let listener = env.udp_listener();
        let (c, s) = env.looked_up(listener);
        let (client, server) = (env.client.qp(c), env.server.qp(s));
        env.accept(s, &[]);
        let found = env.client.next(env.cc).datagram.unwrap();
        let here = client.pd.register((0..=255).cycle().take(5000).collect::<Vec<_>>(), Access::LOCAL_WRITE).unwrap();
        let there = server.pd.register(vec![0; 5000], Access::LOCAL_WRITE).unwrap();
        Talk { env, client, server, server_id: s, found, here, there }
    }

    fn send(&mut self, len: usize, qp_num: u32, qkey: u32) -> Result<(), PostReason> {
        let ah = self.client.pd.create_ah(&self.found.path).unwrap();
        why(self.client.qp.post_send(SendWr::send_to(1, self.here.sge(0..len), To { ah: &ah, qp_num, qkey })))
    }

    /// Sends a datagram that does not reach the server.
    #[track_caller]
    fn is_dropped(&mut self, qp_num: u32, qkey: u32) {
        let before = self.env.fabric.counters().datagrams_dropped;
        self.send(10, qp_num, qkey).unwrap();
        self.env.fabric.advance_by(SECOND);
        assert_eq!(one(&mut self.client.send_cq).map(|done| done.status), Some(WcStatus::SUCCESS));
        assert_eq!(one(&mut self.server.recv_cq), None);
        assert_eq!(self.env.fabric.counters().datagrams_dropped, before + 1);
    }
}

#[test]
fn datagrams_that_a_rule_delays_overtake_each_other() {
    let mut talk = Talk::new();
    let Datagram { qp_num, qkey, .. } = talk.found;
    let _slow = talk.env.fabric.rule(Rule::delay(Latency::Uniform(Duration::ZERO, Duration::from_millis(1))));
    (0..10).for_each(|_| talk.server.qp.post_recv(7, talk.there.sge(0..100)).unwrap());
    (1..=10).for_each(|len| talk.send(len, qp_num, qkey).unwrap());
    talk.env.fabric.advance_by(SECOND);
    let mut arrived = [Completion::default(); 11];
    assert_eq!(talk.server.recv_cq.poll(&mut arrived), Ok(10));
    let lens: Vec<_> = arrived[..10].iter().map(|done| done.byte_len - GRH_LEN as u32).collect();
    assert!(!lens.is_sorted() && lens.iter().sum::<u32>() == 55, "{lens:?}");
}

#[test]
fn what_nobody_wants_is_lost() {
    let mut talk = Talk::new();
    let Datagram { qp_num, qkey, .. } = talk.found;
    talk.is_dropped(qp_num, qkey);
    talk.server.qp.post_recv(1, talk.there.sge(0..49)).unwrap();
    talk.is_dropped(qp_num, qkey);
    talk.env.host.set_link(false);
    talk.is_dropped(qp_num, qkey);
    talk.env.host.set_link(true);
    talk.is_dropped(qp_num, qkey + 1);
    talk.is_dropped(qp_num + 100, qkey);
    // A datagram that fits is still received.
    talk.send(9, qp_num, qkey).unwrap();
    talk.env.fabric.advance_by(SECOND);
    assert_eq!(one(&mut talk.server.recv_cq).map(|done| done.wr_id), Some(1));
}

/// Hazard P109 (`send_data_in`).
#[test]
fn on_linux_6_1_a_datagram_that_is_too_long_ends_the_qp() {
    let mut talk = Talk::with(Config { flavour: Flavour::Linux6_1, ..Config::default() });
    let Datagram { qp_num, qkey, .. } = talk.found;
    for (wr_id, len) in [(1, GRH_LEN + 9), (2, 100)] {
        talk.server.qp.post_recv(wr_id, talk.there.sge(0..len)).unwrap();
    }
    talk.send(10, qp_num, qkey).unwrap();
    talk.env.fabric.advance_by(SECOND);
    assert_eq!(one(&mut talk.client.send_cq).map(|done| done.status), Some(WcStatus::SUCCESS));
    let ended: Vec<_> = completions(&mut talk.server.recv_cq).iter().map(|done| (done.wr_id, done.status)).collect();
    assert_eq!(ended, [(1, WcStatus::LOC_QP_OP_ERR), (2, WcStatus::WR_FLUSH_ERR)]);
    assert_eq!(talk.server.qp.state(), Ok(QpState::ERR));
}

#[test]
fn the_wire_loses_datagrams_too() {
    let mut talk = Talk::new();
    let Datagram { qp_num, qkey, .. } = talk.found;
    talk.server.qp.post_recv(1, talk.there.sge(0..100)).unwrap();
    talk.env.fabric.set_loss(1.0);
    talk.send(10, qp_num, qkey).unwrap();
    talk.env.fabric.advance_by(SECOND);
    assert_eq!(one(&mut talk.client.send_cq).map(|done| done.status), Some(WcStatus::SUCCESS));
    assert_eq!((one(&mut talk.server.recv_cq), talk.env.fabric.counters().datagrams_lost), (None, 1));
}

#[test]
fn a_full_queue_takes_no_more_and_the_error_state_flushes() {
    let mut talk = Talk::new();
    let Datagram { qp_num, qkey, .. } = talk.found;
    for sent in 0..16 {
        assert_eq!(talk.send(1, qp_num, qkey), Ok(()), "{sent}");
    }
    assert_eq!(talk.send(1, qp_num, qkey), Err(PostReason::QueueFull { max: 16 }));
    // Also without an id.
    talk.env.server.disconnect(talk.server_id).unwrap();
    talk.server.qp.post_recv(4, talk.there.sge(0..100)).unwrap();
    assert_eq!(one(&mut talk.server.recv_cq).map(|done| done.status), Some(WcStatus::WR_FLUSH_ERR));
    talk.env.server.device.destroy_qp(talk.server_id).unwrap();
    talk.server.qp.post_recv(5, talk.there.sge(0..100)).unwrap();
    assert_eq!(one(&mut talk.server.recv_cq).map(|done| done.status), Some(WcStatus::WR_FLUSH_ERR));
}

#[test]
fn address_handles_are_checked() {
    let talk = Talk::new();
    let path = talk.found.path;
    let create = |path: AhAttr| talk.client.pd.create_ah(&path).map(drop).map_err(|error| error.errno());
    assert_eq!(create(path), Ok(()));
    assert_eq!(create(AhAttr { grh: None, ..path }), Err(Errno::EINVAL));
    assert_eq!(create(AhAttr { port_num: 2, ..path }), Err(Errno::EINVAL));
    let grh = path.grh.map(|grh| GlobalRoute { sgid_index: 2, ..grh });
    assert_eq!(create(AhAttr { grh, ..path }), Err(Errno::EINVAL));
    talk.env.host.remove_device();
    assert_eq!(create(path), Err(Errno::ENODEV));
}

#[test]
fn a_larger_mtu_lets_larger_datagrams_through_also_over_ipv6() {
    let fabric = Fabric::new(Config { mtu: 4096, ..Config::default() });
    let mut sides = ["fd00::1", "fd00::2"].map(|address| Side::new(&fabric.host(&[ip(address)])));
    let [(client, cc), (server, cs)] = sides.each_mut().map(|side| {
        let channel = side.channel();
        (side, channel)
    });
    server.listener_in(PortSpace::Udp, cs, "[fd00::2]:7");
    let c = client.resolved_in(PortSpace::Udp, cc, "[fd00::2]:7");
    let cp = ConnParam::default();
    client.connect(c, cp, &[]).unwrap();
    let s = server.next(cs).id;
    let (mut c_qp, mut s_qp) = (client.qp(c), server.qp(s));
    server.accept(s, cp, &[]).unwrap();
    let found = client.next(cc).datagram.unwrap();
    let here = c_qp.pd.register(vec![5; 4097], Access::empty()).unwrap();
    let there = s_qp.pd.register(vec![0; 4096 + GRH_LEN], Access::LOCAL_WRITE).unwrap();
    s_qp.qp.post_recv(1, there.sge(0..4096 + GRH_LEN)).unwrap();
    let ah = c_qp.pd.create_ah(&found.path).unwrap();
    let to = To { ah: &ah, qp_num: found.qp_num, qkey: found.qkey };
    assert_eq!(
        why(c_qp.qp.post_send(SendWr::send_to(2, here.sge(0..4097), to))),
        Err(PostReason::DatagramTooLong { len: 4097, mtu: 4096 })
    );
    c_qp.qp.post_send(SendWr::send_to(2, here.sge(0..4096), to)).unwrap();
    fabric.advance_by(SECOND);
    let got = one(&mut s_qp.recv_cq).unwrap();
    assert_eq!(got.byte_len as usize, 4096 + GRH_LEN);
    assert!(s_qp.pd.create_ah_from(&got, &there, 0).is_ok());
}

/// On another fabric everything has the same numbers.
#[test]
fn an_address_handle_of_another_fabric_is_refused() {
    let (mut talk, far) = (Talk::new(), Talk::new());
    let Datagram { path, qp_num, qkey, .. } = talk.found;
    let ah = far.client.pd.create_ah(&path).unwrap();
    let posted = talk.client.qp.post_send(SendWr::send_to(1, talk.here.sge(0..1), To { ah: &ah, qp_num, qkey }));
    assert_eq!(why(posted), Err(PostReason::OtherPd(OfPd::Ah)));
}
