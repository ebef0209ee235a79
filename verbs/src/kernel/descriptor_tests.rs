//! An id has the descriptor of its channel, on whatever channel it is, and ends by a command on it.

use std::cell::Cell;
use std::os::fd::AsRawFd as _;
use std::rc::Rc;

use cmid_proto::{Call, CmEvent, Device as _, Errno, Pollable as _, PortSpace};

use crate::kernel::channel::Channel;
use crate::kernel::for_tests::{DESTROY_ID, GET_EVENT, MIGRATE_ID, channel, create, id, number_of, put_event, with_id};
use crate::kernel::{KernelCm, with_kernel};
use crate::tables::OnChannel;

/// What the kernel does next.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Normal,
    Request,
    RefuseMigrate,
}

/// Returns a kernel that answers every command. Its one event is a request to `id(0)`.
fn kernel(mode: Rc<Cell<Mode>>) -> impl FnMut(&[u8], &mut [u8]) -> Result<(), Errno> {
    move |command, into| {
        into.fill(0);
        match number_of(command)? {
            GET_EVENT if mode.replace(Mode::Normal) == Mode::Request => {
                put_event(into, id(0).to_bits(), 0, CmEvent::ConnectRequest);
                Ok(())
            }
            GET_EVENT => Err(Errno::EAGAIN),
            MIGRATE_ID if mode.get() == Mode::RefuseMigrate => Err(Errno::ENOMEM),
            _ => Ok(()),
        }
    }
}

/// Checks the ids, of which there are `count`.
fn check(device: &KernelCm, count: usize) {
    for (key, OnChannel { id, channel, .. }) in device.tables.ids.iter() {
        assert_eq!(device.tables.channel(*channel).map(Channel::fd), Ok(id.fd), "{key} on {channel}");
    }
    assert_eq!(device.tables.counts().0, count);
}

#[test]
fn an_id_has_the_descriptor_of_its_channel() {
    let mode = Rc::new(Cell::new(Mode::Normal));
    with_kernel(kernel(Rc::clone(&mode)), || {
        let mut device = with_id(PortSpace::Tcp);
        for slot in 1..3 {
            device.call(&Call::OpenChannel { channel: channel(slot) }, &[]).unwrap();
        }
        check(&device, 1);

        let migrate = |slot, from, to| Call::Migrate { id: id(slot), from: channel(from), to: channel(to) };
        mode.set(Mode::RefuseMigrate);
        assert_eq!(device.call(&migrate(0, 0, 1), &[]), Err(Errno::ENOMEM));
        check(&device, 1);
        mode.set(Mode::Normal);
        device.call(&migrate(0, 0, 1), &[]).unwrap();
        check(&device, 1);

        mode.set(Mode::Request);
        assert_eq!(device.fetch(channel(1), id(1)).unwrap().map(|raw| raw.id), Some(id(1)));
        check(&device, 2);
        device.call(&migrate(1, 1, 2), &[]).unwrap();
        check(&device, 2);

        // Its file stays open as long as an id is on it.
        assert_eq!(device.call(&Call::CloseChannel { channel: channel(1) }, &[]), Err(Errno(libc::EBUSY)));
        assert_eq!(device.call(&Call::CloseChannel { channel: channel(0) }, &[]), Ok(()));
        check(&device, 2);

        let mut sibling = device.sibling();
        let handle = device.release(id(1), channel(2)).unwrap();
        sibling.adopt(id(4), channel(5), handle).unwrap();
        check(&device, 1);
        check(&sibling, 1);
        sibling.call(&Call::Destroy { id: id(4) }, &[]).unwrap();
        sibling.call(&Call::CloseChannel { channel: channel(5) }, &[]).unwrap();
        check(&sibling, 0);
    });
}

/// The commands of a channel whose descriptor a forked child has too: closing it ends nothing.
#[test]
fn a_dropped_device_destroys_its_ids_by_command() {
    let destroyed = Rc::new(Cell::new(0));
    let (counted, mode) = (Rc::clone(&destroyed), Rc::new(Cell::new(Mode::Normal)));
    let mut answer = kernel(Rc::clone(&mode));
    let script = move |command: &[u8], into: &mut [u8]| {
        counted.set(counted.get() + u32::from(number_of(command) == Ok(DESTROY_ID)));
        answer(command, into)
    };
    with_kernel(script, || {
        let mut device = KernelCm::open(1).unwrap();
        (0..2).for_each(|slot| create(&mut device, slot, PortSpace::Tcp));
        mode.set(Mode::Request);
        assert_eq!(device.fetch(channel(0), id(2)).unwrap().map(|raw| raw.id), Some(id(2)));
        let released = device.release(id(1), channel(1)).unwrap();
        drop(device);
        assert_eq!(destroyed.get(), 2, "the listener and the id of the request");
        drop(released);
        assert_eq!(destroyed.get(), 3);
    });
}

/// The command goes to the file of its channel, and not to one that has the number of a closed descriptor.
#[test]
fn a_handle_that_is_not_adopted_ends_on_its_own_channel() {
    let (own, ended) = (Rc::new(Cell::new(-1)), Rc::new(Cell::new(None)));
    let (fd, is_open, mut answer) = (Rc::clone(&own), Rc::clone(&ended), kernel(Rc::new(Cell::new(Mode::Normal))));
    let script = move |command: &[u8], into: &mut [u8]| {
        if number_of(command) == Ok(DESTROY_ID) {
            is_open.set(Some(std::fs::exists(format!("/proc/self/fd/{}", fd.get())).unwrap_or(false)));
        }
        answer(command, into)
    };
    with_kernel(script, || {
        let mut device = with_id(PortSpace::Tcp);
        let mut sibling = device.sibling();
        sibling.call(&Call::OpenChannel { channel: channel(0) }, &[]).unwrap();
        own.set(device.fd(channel(0)).map_or(-1, |fd| fd.as_raw_fd()));
        let handle = device.release(id(0), channel(0)).unwrap();
        assert_eq!(sibling.adopt(id(1), channel(0), handle), Err(Errno::EINVAL), "the key is in use");
        assert_eq!(ended.get(), Some(true));
    });
}
