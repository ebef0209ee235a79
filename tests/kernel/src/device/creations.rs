//! Creations that fail name the capacity with its maximum, or the object of another device.

use cmid_proto::datapath::{
    Attaching, Capacity, Caps, CreateCall, CreateError, CreateReason, OfDevice, SrqCaps, prelude::*,
};
use cmid_verbs::Backend;

use crate::env::{CAPS, CLIENT, Side, backend};

/// Checks the error, and returns the maximum.
fn maximum(made: Result<(), CreateError>, call: CreateCall, capacity: Capacity, asked: u32) -> u32 {
    let error = made.expect_err("too large");
    println!("    {error}");
    let reason = error.reason();
    let CreateReason::TooLarge { capacity: named, asked: value, max } = reason else { panic!("{error}") };
    assert_eq!((error.call(), named, value), (Some(call), capacity, asked));
    assert!(max < asked, "{error}");
    max
}

/// Each capacity is named, and its maximum is possible.
pub(crate) fn capacities() {
    const LARGE: u32 = 100_000;
    let (mut side, mut server) = (Side::new(), Side::new());
    // On iWARP an id has no QP before it has a route.
    let (_, addr) = server.listener();
    let id = side.resolved(addr);
    let (pd, cq) = (side.device.alloc_pd(id).expect("alloc_pd"), side.device.create_cq(id, 64).expect("create_cq"));
    let mut qp = |caps| {
        let made = side.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, caps).map(drop);
        if made.is_ok() {
            side.device.destroy_qp(id).expect("destroy_qp");
        }
        made
    };
    let call = CreateCall::CreateQp;
    maximum(qp(Caps { max_send_wr: 1 << 30, ..CAPS }), call, Capacity::MaxSendWr, 1 << 30);
    maximum(qp(Caps { max_recv_wr: 1 << 30, ..CAPS }), call, Capacity::MaxRecvWr, 1 << 30);
    let max_send_sge = maximum(qp(Caps { max_send_sge: LARGE, ..CAPS }), call, Capacity::MaxSendSge, LARGE);
    qp(Caps { max_send_sge, ..CAPS }).expect("the maximum of ranges");
    let max_recv_sge = maximum(qp(Caps { max_recv_sge: LARGE, ..CAPS }), call, Capacity::MaxRecvSge, LARGE);
    qp(Caps { max_recv_sge, ..CAPS }).expect("the maximum of ranges");
    let max_inline = maximum(qp(Caps { max_inline: LARGE, ..CAPS }), call, Capacity::MaxInline, LARGE);
    qp(Caps { max_inline, ..CAPS }).expect("the maximum of inline data");
    let made = qp(Caps { max_inline: max_inline + 1, ..CAPS });
    assert_eq!(maximum(made, call, Capacity::MaxInline, max_inline + 1), max_inline);

    let made = side.device.create_cq(id, 1 << 30).map(drop);
    let depth = maximum(made, CreateCall::CreateCq, Capacity::Depth, 1 << 30);
    assert!(depth >= 64, "{depth}");
    assert_eq!(cq.room().depth(), 64, "although soft-RoCE has made it larger");
    let made = side.device.create_cq(id, u32::MAX).map(drop);
    assert_eq!(maximum(made, CreateCall::CreateCq, Capacity::Depth, u32::MAX), depth);
    let reason = |made: Result<(), CreateError>| made.expect_err("it fails").reason();
    assert_eq!(reason(side.device.create_cq(id, 0).map(drop)), CreateReason::Zero(Capacity::Depth));
    let nic = side.device.device_of(id).expect("device_of");
    let vectors = nic.comp_vectors();
    let made = side.device.create_cq_at(&nic, None, 4, vectors).map(drop);
    assert_eq!(reason(made), CreateReason::NoVector { vector: vectors, vectors });

    let call = CreateCall::CreateSrq;
    let srq = |max_wr, max_sge| pd.create_srq(SrqCaps { max_wr, max_sge }).map(drop);
    maximum(srq(1 << 30, 1), call, Capacity::SrqMaxWr, 1 << 30);
    let max_sge = maximum(srq(4, LARGE), call, Capacity::SrqMaxSge, LARGE);
    srq(4, max_sge).expect("the maximum of ranges");
    assert_eq!(reason(srq(0, 1)), CreateReason::Zero(Capacity::SrqMaxWr));
    let above = cq.room().depth() + 1;
    let most = Caps { max_send_wr: above, ..CAPS };
    let made = side.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, most).map(drop);
    let CreateReason::Overrun(overrun) = reason(made) else { panic!("the CQ has no room") };
    assert_eq!((overrun.reserved, overrun.wanted), (0, above + CAPS.max_recv_wr));
}

/// Of two devices, and of one that was opened twice.
pub(crate) fn elsewhere() {
    let mut side = Side::new();
    let (id, far) = (side.bound(CLIENT), side.bound([10, 98, 0, 1]));
    let [one, two] = [id, far].map(|id| side.device.device_of(id).expect("device_of"));
    let [pd, foreign_pd] = [&one, &two].map(|nic| side.device.alloc_pd_on(nic).expect("alloc_pd"));
    let [cq, foreign_cq] = [&one, &two].map(|nic| side.device.create_cq_on(nic, 64).expect("create_cq"));
    let caps = SrqCaps { max_wr: 4, max_sge: 1 };
    let foreign_srq = foreign_pd.create_srq(caps).expect("create_srq");
    let mut other = Side::new();
    let of_other = other.bound(CLIENT);
    let (other_pd, other_cq) =
        (other.device.alloc_pd(of_other).expect("alloc_pd"), other.device.create_cq(of_other, 64).expect("create_cq"));
    let other_srq = other_pd.create_srq(caps).expect("create_srq");
    let other_qp = other.device.create_qp(Attaching::bare(of_other), &foreign_pd, &other_cq, &other_cq, CAPS).map(drop);
    let near_srq = side.device.alloc_pd(id).expect("alloc_pd").create_srq(caps).expect("create_srq");

    let mut qp = |pd, send, recv, srq: Option<_>| {
        let to = Attaching::bare(id);
        let made = match srq {
            Some(srq) => side.device.create_qp_with_srq(to, pd, send, recv, srq, CAPS),
            None => side.device.create_qp(to, pd, send, recv, CAPS),
        };
        let error = made.map(drop).expect_err("elsewhere");
        println!("    {error}");
        error.reason()
    };
    // Two contexts of one device are the same for librdmacm, which opens it once for the process.
    let opened_again = (backend() == Backend::Kernel).then(|| one.name());
    let elsewhere = [
        (qp(&foreign_pd, &cq, &cq, None), OfDevice::Pd, Some(two.name())),
        (qp(&pd, &foreign_cq, &cq, None), OfDevice::SendCq, Some(two.name())),
        (qp(&pd, &cq, &foreign_cq, None), OfDevice::RecvCq, Some(two.name())),
        (qp(&pd, &cq, &cq, Some(&foreign_srq)), OfDevice::Srq, Some(two.name())),
        (qp(&foreign_pd, &foreign_cq, &foreign_cq, None), OfDevice::Pd, Some(two.name())),
    ];
    let again = opened_again.map(|name| {
        let name = Some(name);
        [
            (qp(&pd, &other_cq, &cq, None), OfDevice::SendCq, name),
            (qp(&pd, &cq, &other_cq, None), OfDevice::RecvCq, name),
            (qp(&other_pd, &cq, &cq, None), OfDevice::SendCq, name),
            (qp(&pd, &cq, &cq, Some(&other_srq)), OfDevice::Srq, name),
        ]
    });
    for (reason, named, name) in elsewhere.into_iter().chain(again.into_iter().flatten()) {
        let CreateReason::OtherDevice { object, of, on } = reason else { panic!("{reason}") };
        assert_eq!((object, Some(of.as_str()), on.as_str()), (named, name, one.name()));
    }
    assert_eq!(qp(&pd, &cq, &cq, Some(&near_srq)), CreateReason::OtherPd);
    let reason = other_qp.expect_err("of another device and open").reason();
    let CreateReason::OtherDevice { object: OfDevice::Pd, of, .. } = reason else { panic!("{reason}") };
    assert_eq!(of.as_str(), two.name());

    let channel = side.device.create_comp_channel(&two).expect("create_comp_channel");
    let error = side.device.create_cq_at(&one, Some(&channel), 4, 0).map(drop).expect_err("elsewhere");
    println!("    {error}");
    let CreateReason::OtherDevice { object: OfDevice::CompChannel, of, .. } = error.reason() else { panic!("{error}") };
    assert_eq!(of.as_str(), two.name());
}
