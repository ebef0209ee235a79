//! Effects of a re-registration on access to memory. Rights are checked when a work request is carried out.

use cmid_proto::datapath::{PostReason, SendWr, prelude::*};
use cmid_sim::{Change, WcStatus};

use super::*;
use crate::common::{Pair, SECOND, bytes_at, connected, only, why};

struct Link {
    env: Env,
    pair: Pair,
    here: Mr,
    there: Mr,
}

impl Link {
    fn new(rereg: Rereg) -> Link {
        let (env, pair) = connected(Config { rereg, ..Config::default() });
        let here = pair.client_qp.pd.register([1; 16], RW).unwrap();
        let there = pair.server_qp.pd.register([2; 16], RW).unwrap();
        Link { env, pair, here, there }
    }

    #[track_caller]
    fn change(&mut self, change: Change) {
        let ended = self.there.reregister(change, ANEW);
        assert!(ended.result.is_ok(), "{ended:?}");
    }

    /// Sends into the server's region; returns the status of the sender and of the receiver.
    fn sends(&mut self) -> [WcStatus; 2] {
        let Pair { client_qp, server_qp, .. } = &mut self.pair;
        server_qp.qp.post_recv(3, self.there.sge(0..16)).unwrap();
        client_qp.qp.post_send(SendWr::send(4, self.here.sge(0..16))).unwrap();
        self.env.fabric.advance_by(SECOND);
        [only(&mut client_qp.send_cq).status, only(&mut server_qp.recv_cq).status]
    }
}

#[test]
fn what_is_under_way_is_checked_when_it_arrives() {
    let mut link = Link::new(Rereg::PdAccess);
    let remote = link.there.remote(0);
    link.pair.client_qp.qp.post_send(SendWr::write(1, link.here.sge(0..16), remote)).unwrap();
    link.change(Change::default().to_access(Access::LOCAL_WRITE));
    link.env.fabric.advance_by(SECOND);
    assert_eq!(only(&mut link.pair.client_qp.send_cq).status, WcStatus::REM_ACCESS_ERR);
    assert_eq!(bytes_at(&link.there, 0), [2; 16]);
}

#[test]
fn a_receive_and_a_read_need_local_write_now() {
    let mut link = Link::new(Rereg::PdAccess);
    link.change(Change::default().to_access(Access::REMOTE_READ));
    let (from, to) = (link.here.remote(0), link.there.sge(0..16));
    let s = &mut link.pair.server_qp.qp;
    assert_eq!(why(s.post_recv(3, link.there.sge(0..16))), Err(PostReason::ReadOnly));
    assert_eq!(why(s.post_recv(3, link.there.sge(4..4))), Err(PostReason::ReadOnly));
    assert_eq!(why(s.post_send(SendWr::read(3, to, from))), Err(PostReason::ReadOnly));
    // A write only reads from the region.
    s.post_send(SendWr::write(3, to, from)).unwrap();
    link.env.fabric.advance_by(SECOND);
    assert_eq!(only(&mut link.pair.server_qp.send_cq).status, WcStatus::SUCCESS);
    link.change(Change::default().to_access(Access::LOCAL_WRITE));
    assert_eq!(link.sends(), [WcStatus::SUCCESS; 2]);
}

#[test]
fn an_unusable_region_can_be_posted_nowhere() {
    let mut link = Link::new(Rereg::All);
    let (code, errno, left) = (memory::Code::Cmd, Errno::EIO, cmid_sim::Left::New);
    link.env.host.fail_next_reregistration(cmid_sim::ReregFault { code, errno, left });
    assert!(link.there.reregister(Change::default().to_buffer([7; 16]), ANEW).result.is_err());
    assert_eq!(why(link.pair.server_qp.qp.post_recv(1, link.there.sge(0..8))), Err(PostReason::NotRegistered));
    assert_eq!(
        why(link.pair.server_qp.qp.post_send(SendWr::send(1, link.there.sge(0..8)))),
        Err(PostReason::NotRegistered)
    );
}
