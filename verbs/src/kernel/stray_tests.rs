//! Events that are not reported, before one that is, and the argument of an event.

use std::cell::Cell;
use std::rc::Rc;

use cmid_proto::{CmEvent, Device as _, Errno, PortSpace};

use crate::kernel::abi::offset;
use crate::kernel::for_tests::{CREATE_ID, GET_EVENT, channel, id, number_of, put_event, with_id};
use crate::kernel::with_kernel;

/// Returns a kernel with `strays` events of an unknown id, then one of the id with this number.
fn kernel(strays: usize, uid: u64) -> impl FnMut(&[u8], &mut [u8]) -> Result<(), Errno> {
    let reads = Rc::new(Cell::new(0_usize));
    move |command, into| {
        match number_of(command)? {
            CREATE_ID => into[..4].copy_from_slice(&7_u32.to_ne_bytes()),
            GET_EVENT => {
                let read = reads.replace(reads.get() + 1);
                // The device reads an event when it is opened.
                let Some(read) = read.checked_sub(1) else { return Err(Errno::EAGAIN) };
                if read > strays {
                    return Err(Errno::EAGAIN);
                }
                put_event(into, if read == strays { uid } else { u64::MAX }, 7, CmEvent::AddrChange);
            }
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn an_event_follows_any_number_of_unreported_ones() {
    let (id, channel, child) = (id(0), channel(0), id(1));
    for strays in [0, 1, 15, 16, 17, 1000] {
        with_kernel(kernel(strays, id.to_bits()), || {
            let mut device = with_id(PortSpace::Tcp);
            let raw = device.fetch(channel, child).unwrap().expect("the event of the id");
            assert_eq!((raw.id, raw.kind), (id, CmEvent::AddrChange), "{strays}");
            assert_eq!(device.fetch(channel, child), Ok(None), "{strays}");
        });
    }
}

#[test]
fn a_user_event_has_its_argument() {
    let (id, channel, child) = (id(0), channel(0), id(1));
    let mut events = kernel(0, id.to_bits());
    let with_argument = move |command: &[u8], into: &mut [u8]| {
        events(command, into)?;
        if number_of(command)? == GET_EVENT {
            into[offset::EVENT_KIND..][..4].copy_from_slice(&CmEvent::User.code().to_ne_bytes());
            into[offset::EVENT_PARAM..][..8].copy_from_slice(&0x0123_4567_89ab_cdef_u64.to_ne_bytes());
        }
        Ok(())
    };
    with_kernel(with_argument, || {
        let mut device = with_id(PortSpace::Tcp);
        let raw = device.fetch(channel, child).unwrap().expect("the event");
        assert_eq!((raw.kind, raw.private_data), (CmEvent::User, &0x0123_4567_89ab_cdef_u64.to_ne_bytes()[..]));
    });
}
