//! Effects of a device removal on memory.

use cmid_proto::datapath::prelude::*;
use cmid_sim::{Change, PdState};

use super::*;
use crate::common::connected;

#[test]
fn a_region_without_its_device_can_be_deregistered_where_that_is_allowed() {
    let fixture = MemoryFixture::new(Config { destroy_after_removal: true, ..Config::default() });
    let (mr, mw) = (fixture.mr(), fixture.one.alloc_mw().unwrap());
    fixture.env.host.remove_device();
    assert_eq!(mr.deregister().unwrap().buffer, [1; 100]);
    mw.dealloc().unwrap();
    fixture.one.dealloc().unwrap();
    assert_eq!(fixture.one.state(), PdState::Gone);
}

#[test]
fn a_domain_without_its_device_is_stranded() {
    let fixture = MemoryFixture::able();
    let mr = fixture.mr();
    fixture.env.host.remove_device();
    assert_eq!((fixture.one.state(), fixture.one.users_at_device()), (PdState::Stranded, None));
    let ErrorWith { given: buffer, error } = fixture.one.register([1], RW).unwrap_err();
    assert_eq!(buffer, [1]);
    refused(error, MemoryReason::DeviceGone);
    assert_eq!(fixture.one.alloc_mw().map(drop).map_err(|error| error.errno()), Err(Errno::EIO));
    refused(fixture.one.dealloc().unwrap_err(), MemoryReason::InUse(1));
    drop(mr);
    assert_eq!(fixture.one.dealloc(), Err(MemoryError::Dealloc(Errno::EIO)));
    assert_eq!(fixture.one.state(), PdState::Stranded);
}

#[test]
fn another_device_knows_nothing_of_the_one_before() {
    let mut fixture = MemoryFixture::able();
    let mr = fixture.mr();
    fixture.env.host.remove_device();
    fixture.env.host.add_device();
    assert_eq!((mr.state(), fixture.one.state()), (MrState::Unusable, PdState::Stranded));
    let id = fixture.env.client.id(fixture.env.cc);
    fixture.env.client.bind(id, "10.0.0.1:0").unwrap();
    let fresh = fixture.env.client.device.alloc_pd(id).unwrap();
    let mut own = fresh.register([1], RW).unwrap();
    refused(
        own.reregister(Change::default().to_pd(fixture.one.clone()), ANEW).result.unwrap_err(),
        MemoryReason::DeviceGone,
    );
    let cq = fixture.env.client.device.create_cq(id, 32).unwrap();
    let qp = fixture.env.client.device.create_qp(
        cmid_proto::datapath::Attaching::bare(id),
        &fixture.one,
        &cq,
        &cq,
        cmid_sim::Caps::default(),
    );
    assert_eq!(qp.map(drop).map_err(Errno::from), Err(Errno::EINVAL));
    assert_eq!(fresh.users(), 1);
    let stale = fixture.env.client.device.alloc_pd(fixture.id);
    assert_eq!(stale.map(drop).map_err(Errno::from), Err(Errno::ENODEV));
}

/// A poll may write to the memory.
#[test]
fn traffic_pins_after_the_device_is_gone_too() {
    for destroyed in [false, true] {
        let (mut env, pair) = connected(Config { destroy_after_removal: true, ..Config::default() });
        let mut c = pair.client_qp;
        let (mr, dropped) = (c.pd.register([1], RW).unwrap(), c.pd.register([2], RW).unwrap());
        c.qp.post_recv(1, mr.sge(0..1)).unwrap();
        c.qp.post_recv(2, dropped.sge(0..1)).unwrap();
        drop(dropped);
        assert_eq!(c.pd.users(), 3);
        env.host.remove_device();
        assert_eq!(c.pd.users(), 2, "the QP is gone");
        let ErrorWith { given: mr, error } = mr.deregister().unwrap_err();
        refused(error, MemoryReason::InFlight);
        if destroyed {
            env.client.device.destroy_qp(pair.client).unwrap();
            drop(c.qp);
        } else {
            assert_eq!(c.recv_cq.poll(&mut [cmid_sim::Completion::default(); 2]), Ok(2));
        }
        assert_eq!(c.pd.users(), 1);
        assert_eq!(mr.deregister().unwrap().buffer, [1]);
    }
}
