//! A creation that fails names the capacity with its maximum, or the object of another device.

use std::net::IpAddr;

use cmid_proto::datapath::{
    Access, AhAttr, Attaching, Capacity, Caps, CreateCall, CreateError, CreateReason, DataPath, GlobalRoute, OfDevice,
    ProtectionDomain, SrqCaps,
};
use cmid_proto::memory::MemoryReason;
use cmid_proto::{Call, ChannelKey, Device as _, Errno, IdKey, PortSpace, Transport};
use cmid_sim::{Config, Cq, Fabric, Pd, Resource, SimDevice};

use crate::common::{Env, Side, ip};

fn bound(env: &mut Env) -> IdKey {
    env.client.bound(env.cc, "10.0.0.1:0")
}

/// Two devices of one host, and a host of another fabric whose device has the same name.
#[test]
fn an_object_of_another_device_is_named_with_both_devices() {
    let mut env = Env::new();
    let fabric = Fabric::new(Config::default());
    let devices: [&[IpAddr]; 2] = [&[ip("10.0.0.1")], &[ip("10.1.0.1")]];
    env.client = Side::new(&fabric.host_with_devices(&devices, Transport::InfiniBand));
    let channel = env.client.channel();
    let ids = ["10.0.0.1:0", "10.1.0.1:0"].map(|addr| {
        let id = env.client.id(channel);
        env.client.bind(id, addr).unwrap();
        id
    });
    let device = &mut env.client.device;
    let [one, two] = ids.map(|id| device.device_of(id).unwrap());
    let [pd, foreign_pd]: [Pd; 2] = [&one, &two].map(|nic| device.alloc_pd_on(nic).unwrap());
    let [cq, foreign_cq]: [Cq; 2] = [&one, &two].map(|nic| device.create_cq_on(nic, 64).unwrap());
    let caps = SrqCaps { max_wr: 4, max_sge: 1 };
    let [srq, foreign_srq] = [&pd, &foreign_pd].map(|pd| pd.create_srq(caps).unwrap());
    let id = ids[0];
    let mut qp = |pd, send, recv, srq: Option<_>| {
        let to = Attaching::bare(id);
        let made = match srq {
            Some(srq) => device.create_qp_with_srq(to, pd, send, recv, srq, Caps::default()),
            None => device.create_qp(to, pd, send, recv, Caps::default()),
        };
        made.map(drop).map_err(|error| error.to_string())
    };
    for (made, object) in [
        (qp(&foreign_pd, &cq, &cq, None), "the PD"),
        (qp(&pd, &foreign_cq, &cq, None), "the CQ of sends"),
        (qp(&pd, &cq, &foreign_cq, None), "the CQ of receives"),
        (qp(&pd, &cq, &cq, Some(&foreign_srq)), "the SRQ"),
    ] {
        assert_eq!(made, Err(format!("create_qp: {object} is of sim0_1, not of sim0_0")));
    }
    let near_pd = device.alloc_pd_on(&one).unwrap();
    let made = device.create_qp_with_srq(Attaching::bare(id), &near_pd, &cq, &cq, &srq, Caps::default()).map(drop);
    assert_eq!(made, Err(CreateError::new(CreateCall::CreateQp, CreateReason::OtherPd)));
    let comp_channel = device.create_comp_channel(&two).unwrap();
    let made = device.create_cq_at(&one, Some(&comp_channel), 4, 0).map(drop).map_err(|error| error.to_string());
    assert_eq!(made, Err("create_cq: the completion channel is of sim0_1, not of sim0_0".into()));

    let mut other = Side::new(&Fabric::new(Config::default()).host(&[ip("10.0.0.1")]));
    let channel = other.channel();
    let of_other = other.id(channel);
    other.bind(of_other, "10.0.0.1:0").unwrap();
    let stranger = other.device.alloc_pd(of_other).unwrap();
    let made = device.create_qp(Attaching::bare(id), &stranger, &cq, &cq, Caps::default()).map(drop);
    let error = made.unwrap_err();
    assert_eq!(error.to_string(), "create_qp: the PD is of sim0_0 as opened another time");
    let CreateReason::OtherDevice { object: OfDevice::Pd, of, on } = error.reason() else { panic!("{error}") };
    assert_eq!((of, error.errno()), (on, Errno::EINVAL));
}

#[test]
fn the_other_reasons_of_a_qp_are_named() {
    let mut env = Env::new();
    let (id, second) = (bound(&mut env), bound(&mut env));
    let device = &mut env.client.device;
    let (pd, cq) = (device.alloc_pd(id).unwrap(), device.create_cq(id, 33).unwrap());
    let mut reason = |id, pd: &Pd| {
        let made = device.create_qp(Attaching::bare(id), pd, &cq, &cq, Caps::default());
        made.map_err(|error| error.reason())
    };
    let first = reason(id, &pd).unwrap();
    assert_eq!(reason(second, &pd).map(drop).map_err(|reason| reason.to_string()), {
        Err("16 more work requests would overrun the CQ of depth 33, which has 32 already".into())
    });
    drop(first);
    let gone = env.client.device.alloc_pd(second).unwrap();
    gone.dealloc().unwrap();
    let (device, small) = (&mut env.client.device, Caps { max_send_wr: 1, max_recv_wr: 0, ..Caps::default() });
    let made = device.create_qp(Attaching::bare(second), &gone, &cq, &cq, small).map(drop);
    assert_eq!(made.map_err(|error| error.reason()), Err(CreateReason::Pd(MemoryReason::Gone)));
    let made = device.create_qp(Attaching::bare(id), &pd, &cq, &cq, small).map(drop);
    assert_eq!(made.map_err(|error| error.reason()), Err(CreateReason::HasQp));
    let made = device.create_qp(Attaching::bare(second), &pd, &cq, &cq, Caps { max_inline: 513, ..small }).map(drop);
    let reason = CreateReason::TooLarge { capacity: Capacity::MaxInline, asked: 513, max: 512 };
    assert_eq!(made, Err(CreateError::new(CreateCall::CreateQp, reason)));
    let made = [gone.create_srq(SrqCaps { max_wr: 1, max_sge: 1 }).map(drop), gone.alloc_mw().map(drop)];
    assert_eq!(made.map(|made| made.map_err(|error| error.reason())), [Err(CreateReason::Pd(MemoryReason::Gone)); 2]);
}

/// Creates a resource on the device of an id.
fn create(device: &mut SimDevice, (channel, id): (ChannelKey, IdKey), pd: &Pd, of: Resource) -> Result<(), Errno> {
    let errno = |error: CreateError| error.errno();
    let grh = Some(GlobalRoute::default());
    match of {
        Resource::Channel => device.call(&Call::OpenChannel { channel: ChannelKey::from_parts(0, 9, 1).unwrap() }, &[]),
        Resource::Id => {
            let id = IdKey::from_parts(0, 9, 1).unwrap();
            device.call(&Call::CreateId { id, channel, port_space: PortSpace::Tcp }, &[])
        }
        Resource::Pd => device.alloc_pd(id).map(drop).map_err(errno),
        Resource::Mr => pd.register(vec![0; 8], Access::empty()).map(drop).map_err(Errno::from),
        Resource::Mw => pd.alloc_mw().map(drop).map_err(errno),
        Resource::CompChannel => {
            let nic = device.device_of(id).map_err(errno)?;
            device.create_comp_channel(&nic).map(drop).map_err(errno)
        }
        Resource::Cq => device.create_cq(id, 8).map(drop).map_err(errno),
        Resource::Srq => pd.create_srq(SrqCaps { max_wr: 1, max_sge: 1 }).map(drop).map_err(errno),
        Resource::Qp => {
            let cq = device.create_cq(id, 64).map_err(errno)?;
            device.create_qp(Attaching::bare(id), pd, &cq, &cq, Caps::default()).map(drop).map_err(errno)
        }
        Resource::Ah => pd.create_ah(&AhAttr { grh, port_num: 1, ..AhAttr::default() }).map(drop).map_err(errno),
    }
}

#[test]
fn each_resource_may_be_exhausted_for_one_creation_which_leaves_nothing_behind() {
    for of in Resource::ALL {
        let host = Fabric::new(Config::default()).host(&[ip("10.0.0.1")]);
        let mut side = Side::new(&host);
        let channel = side.channel();
        let id = side.id(channel);
        side.bind(id, "10.0.0.1:0").unwrap();
        let pd = side.device.alloc_pd(id).unwrap();
        host.fail_next_creation(of, Errno::ENOMEM);
        assert_eq!(create(&mut side.device, (channel, id), &pd, of), Err(Errno::ENOMEM), "{of:?}");
        assert_eq!(pd.users(), 0, "{of:?}");
        assert_eq!(create(&mut side.device, (channel, id), &pd, of), Ok(()), "{of:?}");
    }
}
