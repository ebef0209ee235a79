//! Events that are read after the removal of their device: the kernel refuses the query of the id, as librdmacm finds too.
#![expect(clippy::unwrap_used, reason = "tests")]

use core::mem::offset_of;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cmid_proto::{CmEvent, Device as _, Errno, PortSpace, RawEvent, Transport};

use crate::kernel::abi::{Command, QpAttr};
use crate::kernel::failing_tests::FakeQp;
use crate::kernel::for_tests::{CREATE_ID, DESTROY_ID, GET_EVENT, QUERY, channel, id, number_of, put_event, with_id};
use crate::kernel::transport::{Seen, Transports};
use crate::kernel::with_kernel;

/// Reads these events of an id. Returns the types and statuses that are reported, and the number of ids that are destroyed.
fn read(unread: &[CmEvent], removed: bool) -> (Vec<(CmEvent, i32)>, u32) {
    let unread: VecDeque<_> = unread.iter().copied().collect();
    let (unread, destroyed) = (RefCell::new(unread), Rc::new(Cell::new(0)));
    let (counted, opened) = (Rc::clone(&destroyed), Cell::new(false));
    let kernel = move |command: &[u8], into: &mut [u8]| {
        into.fill(0);
        match number_of(command)? {
            CREATE_ID => into[..4].copy_from_slice(&7_u32.to_ne_bytes()),
            DESTROY_ID => counted.set(counted.get() + 1),
            QUERY if removed => return Err(Errno::ENXIO),
            // The GUID and the port of the device.
            QUERY => into[..9].copy_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0, 1]),
            // The device reads an event when it is opened.
            GET_EVENT if !opened.replace(true) => return Err(Errno::EAGAIN),
            GET_EVENT => {
                let kind = unread.borrow_mut().pop_front().ok_or(Errno::EAGAIN)?;
                put_event(into, id(0).to_bits(), 7, kind);
            }
            _ => {}
        }
        Ok(())
    };
    with_kernel(kernel, || {
        let mut device = with_id(PortSpace::Tcp);
        let (mut reported, qp) = (Vec::new(), Arc::new(FakeQp::default()));
        let next = |raw: RawEvent<&[u8]>| (raw.kind, raw.status);
        while let Some(event) = device.fetch(channel(0), id(1 + reported.len() as u32)).unwrap().map(next) {
            if event.0 == CmEvent::AddrResolved {
                device.attach_qp(id(0), |_, _| Ok(Arc::clone(&qp))).unwrap();
            }
            reported.push(event);
        }
        // It may be of another device than this one, which has adopted the id.
        let has_qp = reported.iter().any(|(kind, _)| *kind == CmEvent::AddrResolved);
        assert_eq!(qp.removed.load(Ordering::Relaxed), usize::from(has_qp));
        (reported, destroyed.get())
    })
}

#[test]
fn a_lookup_that_is_read_after_the_removal_has_failed() {
    for (resolved, error) in
        [(CmEvent::AddrResolved, CmEvent::AddrError), (CmEvent::RouteResolved, CmEvent::RouteError)]
    {
        let unread = [resolved, CmEvent::DeviceRemoval];
        assert_eq!(read(&unread, true).0, [(error, -1), (CmEvent::DeviceRemoval, 0)]);
        assert_eq!(read(&unread, false).0, [(resolved, 0), (CmEvent::DeviceRemoval, 0)]);
    }
}

#[test]
fn requests_that_are_read_after_the_removal_are_not_reported() {
    let mut unread = [CmEvent::ConnectRequest; 40];
    unread[39] = CmEvent::DeviceRemoval;
    assert_eq!(read(&unread, true), (vec![(CmEvent::DeviceRemoval, 0)], 39));
    assert_eq!(read(&unread, false).0.len(), 40);
}

/// A location of GUID 7, the events, and these attributes for INIT.
fn with_device(mask: u32, unread: Vec<CmEvent>, run: impl FnOnce()) {
    let (unread, opened) = (RefCell::new(VecDeque::from(unread)), Cell::new(false));
    let kernel = move |command: &[u8], into: &mut [u8]| {
        into.fill(0);
        match number_of(command)? {
            CREATE_ID => into[..4].copy_from_slice(&7_u32.to_ne_bytes()),
            QUERY => into[..9].copy_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0, 1]),
            number if number == Command::InitQpAttr as u32 => {
                into[offset_of!(QpAttr, qp_attr_mask)..][..4].copy_from_slice(&mask.to_ne_bytes());
            }
            GET_EVENT if !opened.replace(true) => return Err(Errno::EAGAIN),
            GET_EVENT => {
                let kind = unread.borrow_mut().pop_front().ok_or(Errno::EAGAIN)?;
                put_event(into, id(0).to_bits(), 7, kind);
            }
            _ => {}
        }
        Ok(())
    };
    with_kernel(kernel, run);
}

/// The GUID of the device that the script reports; no device in sysfs has it.
const GUID: u64 = u64::from_ne_bytes([7, 0, 0, 0, 0, 0, 0, 0]);

#[test]
fn the_transport_of_a_removed_device_is_not_that_of_its_successor() {
    with_device(0, vec![CmEvent::AddrResolved, CmEvent::DeviceRemoval], || {
        let mut device = with_id(PortSpace::Tcp);
        device.transports = Transports::of(GUID, Seen::One(Transport::Iwarp));
        assert!(device.fetch(channel(0), id(1)).unwrap().is_some());
        assert_eq!(device.transport(id(0)), Some(Transport::Iwarp));
        assert!(device.fetch(channel(0), id(1)).unwrap().is_some());
        assert_eq!(device.transport(id(0)), None);
    });
}

#[test]
fn the_kernel_decides_where_devices_of_both_transports_have_one_guid() {
    // State, access flags and port; the P_Key index too on InfiniBand.
    for (mask, transport) in [(0x29, Transport::Iwarp), (0x39, Transport::InfiniBand)] {
        with_device(mask, vec![CmEvent::AddrResolved], move || {
            let mut device = with_id(PortSpace::Tcp);
            device.transports = Transports::of(GUID, Seen::Both);
            assert!(device.fetch(channel(0), id(1)).unwrap().is_some());
            assert_eq!(device.transport(id(0)), Some(transport));
        });
    }
}
