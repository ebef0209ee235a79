//! Devices.

pub(crate) fn devices() {
    let devices = cmid_verbs::devices().expect("there is an RDMA device");
    let device = devices.iter().find(|device| device.name == "rxe0").expect("rxe0");
    println!("             {device:?}");
    assert_eq!(device.ports, 1);
    assert_ne!(device.node_guid, 0);
    assert_eq!((device.max_responder_resources, device.max_initiator_depth), (128, 128));
    for _ in 0..20 {
        assert_eq!(cmid_verbs::devices().as_ref(), Ok(&devices));
    }
}
