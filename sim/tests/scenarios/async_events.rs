//! Asynchronous events of a device.

use cmid_proto::Errno;
use cmid_proto::datapath::{AsyncEvent, AsyncEventKind, AsyncEventQueue, AsyncSource, DataPath};
use rustix::event::{PollFd, PollFlags, poll};

use cmid_sim::Config;

use crate::common::connected;

fn is_readable(events: &impl AsyncEventQueue) -> bool {
    let fd = events.fd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn a_device_reports_its_port_and_its_removal_to_each_reader() {
    let (mut env, pair) = connected(Config::default());
    let nic = env.client.device.device_of(pair.client).unwrap();
    let mut readers = [0; 2].map(|_| env.client.device.async_events(&nic).unwrap());
    let mut late = env.client.device.async_events(&nic).unwrap();
    assert_eq!((late.next_event(), is_readable(&late)), (Ok(None), false));
    env.host.set_link(false);
    env.host.set_link(false);
    env.host.set_link(true);
    env.host.remove_device();
    let port = |kind| AsyncEvent { kind, source: AsyncSource::Port(1) };
    for reader in &mut readers {
        assert!(is_readable(reader));
        assert_eq!(reader.next_event(), Ok(Some(port(AsyncEventKind::PORT_ERR))));
        assert_eq!(reader.next_event(), Ok(Some(port(AsyncEventKind::PORT_ACTIVE))));
        assert!(is_readable(reader));
        let fatal = AsyncEvent { kind: AsyncEventKind::DEVICE_FATAL, source: AsyncSource::Device };
        assert_eq!(reader.next_event(), Ok(Some(fatal)));
        assert_eq!((reader.next_event(), is_readable(reader)), (Ok(None), false));
    }
    // The handle of the removed device is not that of the next one.
    assert_eq!(env.client.device.async_events(&nic).map(drop).map_err(|error| error.errno()), Err(Errno::ENODEV));
    assert_eq!(env.client.device.alloc_pd_on(&nic).map(drop).map_err(Errno::from), Err(Errno::ENODEV));
    assert_eq!(env.client.device.create_cq_on(&nic, 1).map(drop).map_err(Errno::from), Err(Errno::ENODEV));
    env.host.add_device();
    assert_eq!(env.client.device.alloc_pd_on(&nic).map(drop).map_err(Errno::from), Err(Errno::ENODEV));
    env.host.set_link(false);
    assert_eq!(readers[0].next_event(), Ok(None));
}
