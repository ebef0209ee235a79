//! Events of adopted ids, which the kernel reports under the keys of their first devices. Cores may have the same number.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use cmid_proto::{Call, CmEvent, Device as _, Errno, IdKey, Pollable as _, PortSpace};

use crate::kernel::for_tests::{CREATE_ID, GET_EVENT, channel, create, id, number_of, put_event, with_id};
use crate::kernel::{KernelCm, with_kernel};

/// The events to read: the uid, the number of the id, and the type.
type Unread = Rc<RefCell<VecDeque<(IdKey, u32, CmEvent)>>>;

/// Returns a kernel that numbers its ids from 1.
fn kernel(unread: Unread) -> impl FnMut(&[u8], &mut [u8]) -> Result<(), Errno> {
    let mut handles = 0_u32;
    move |command, into| {
        into.fill(0);
        match number_of(command)? {
            CREATE_ID => {
                handles += 1;
                into[..4].copy_from_slice(&handles.to_ne_bytes());
            }
            GET_EVENT => {
                let (uid, handle, kind) = unread.borrow_mut().pop_front().ok_or(Errno::EAGAIN)?;
                put_event(into, uid.to_bits(), handle, kind);
            }
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn an_event_is_of_the_id_with_its_number_whatever_key_others_have() {
    let unread = Unread::default();
    with_kernel(kernel(Rc::clone(&unread)), || {
        let mut device = with_id(PortSpace::Tcp);
        // Two ids of devices whose cores have the number of this one. All three are on one channel then.
        for slot in 1..3 {
            let mut other = device.sibling();
            create(&mut other, 0, PortSpace::Tcp);
            let handle = other.release(id(0), channel(0)).unwrap();
            device.adopt(id(slot), channel(slot), handle).unwrap();
            device.call(&Call::Migrate { id: id(slot), from: channel(slot), to: channel(0) }, &[]).unwrap();
        }
        let read = |device: &mut KernelCm, handle| {
            unread.borrow_mut().push_back((id(0), handle, CmEvent::Disconnected));
            device.fetch(channel(0), id(9)).unwrap().map(|raw| raw.id)
        };
        let found = [1, 2, 3, 4].map(|handle| read(&mut device, handle));
        assert_eq!(found, [Some(id(0)), Some(id(1)), Some(id(2)), None]);
        device.call(&Call::Destroy { id: id(1) }, &[]).unwrap();
        let found = [1, 2, 3].map(|handle| read(&mut device, handle));
        assert_eq!(found, [Some(id(0)), None, Some(id(2))]);
    });
}

#[test]
fn the_adopted_listener_of_a_request_is_sought_once() {
    let unread = Unread::default();
    with_kernel(kernel(Rc::clone(&unread)), || {
        let mut first = with_id(PortSpace::Tcp);
        first.call(&Call::Listen { id: id(0), backlog: 1 }, &[]).unwrap();
        let mut before = (first, 0);
        for slot in 1..3 {
            let (mut device, of) = before;
            let handle = device.release(id(of), channel(of)).unwrap();
            let mut device = device.sibling();
            device.adopt(id(slot), channel(slot), handle).unwrap();
            for _ in 0..2 {
                unread.borrow_mut().push_back((id(0), 9, CmEvent::ConnectRequest));
                let request = device.fetch(channel(slot), id(9)).unwrap();
                assert_eq!(request.and_then(|raw| raw.listener), Some(id(slot)));
                device.call(&Call::Destroy { id: id(9) }, &[]).unwrap();
                // What would be searched for the next one.
                device.adopted.clear();
            }
            before = (device, slot);
        }
    });
}
