//! An event that is read by a short path is the same as by the long one.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use cmid_proto::{Call, ChannelKey, CmEvent, Device as _, Errno, EventSink, Pollable as _, PortSpace, RawEvent};

use crate::kernel::abi::offset;
use crate::kernel::test_commands::{CREATE_ID, DESTROY_ID, GET_EVENT, MIGRATE_ID, QUERY, channel, id, number_of};
use crate::kernel::{KernelCm, with_kernel};

/// The id of a request.
const CHILD: u32 = 9;
/// The kernel's number of the id of a request.
const CHILD_HANDLE: u32 = 900;

/// An event of the kernel.
#[derive(Clone, Copy, Debug)]
struct Sent {
    uid: u64,
    kind: u32,
    status: i32,
}

impl Sent {
    /// Writes it. The other bytes differ from each other.
    fn write(self, into: &mut [u8]) {
        into.iter_mut().zip(0_u8..=u8::MAX).for_each(|(byte, number)| *byte = number | 1);
        into[..8].copy_from_slice(&self.uid.to_ne_bytes());
        into[offset::EVENT_ID..][..4].copy_from_slice(&CHILD_HANDLE.to_ne_bytes());
        into[offset::EVENT_KIND..][..4].copy_from_slice(&self.kind.to_ne_bytes());
        into[offset::EVENT_STATUS..][..4].copy_from_slice(&self.status.to_ne_bytes());
    }
}

/// A kernel with at most one event.
#[derive(Default)]
struct Kernel {
    event: Cell<Option<Sent>>,
    handles: Cell<u32>,
    commands: RefCell<Vec<u32>>,
}

impl Kernel {
    fn answer(&self, command: &[u8], into: &mut [u8]) -> Result<(), Errno> {
        let command = number_of(command)?;
        self.commands.borrow_mut().push(command);
        match command {
            CREATE_ID => {
                self.handles.set(self.handles.get() + 1);
                into.copy_from_slice(&self.handles.get().to_ne_bytes());
            }
            GET_EVENT => self.event.take().ok_or(Errno::EAGAIN)?.write(into),
            _ => into.fill(0),
        }
        Ok(())
    }
}

/// The slots of the ids of the device. `on` returns the channel of each.
const PLAIN: u32 = 0;
const LISTENER: u32 = 1;
const MOVED_LISTENER: u32 = 2;
const DATAGRAMS: u32 = 3;
const DATAGRAM_LISTENER: u32 = 4;
const ADOPTED: u32 = 5;
const IDS: u32 = 6;

fn on(id: u32) -> ChannelKey {
    channel(id)
}

/// Returns a device with all ids, and the number under which the kernel reports the adopted one.
fn device() -> (KernelCm, u64) {
    let mut device = KernelCm::open(1).unwrap();
    let first = channel(IDS);
    device.call(&Call::OpenChannel { channel: first }, &[]).unwrap();
    for slot in 0..ADOPTED {
        let (port_space, key) =
            (if [DATAGRAMS, DATAGRAM_LISTENER].contains(&slot) { PortSpace::Udp } else { PortSpace::Tcp }, id(slot));
        device.call(&Call::OpenChannel { channel: on(slot) }, &[]).unwrap();
        device.call(&Call::CreateId { id: key, channel: first, port_space }, &[]).unwrap();
        let migrate = Call::Migrate { id: key, from: first, to: on(slot) };
        let listen = Call::Listen { id: key, backlog: 4 };
        let calls = match slot {
            LISTENER | DATAGRAM_LISTENER => [Some(migrate), Some(listen)],
            MOVED_LISTENER => [Some(listen), Some(migrate)],
            _ => [Some(migrate), None],
        };
        calls.iter().flatten().for_each(|call| device.call(call, &[]).unwrap());
    }
    let mut sibling = device.sibling();
    let (there, its_channel) = (id(2), channel(3));
    sibling.call(&Call::OpenChannel { channel: its_channel }, &[]).unwrap();
    sibling.call(&Call::CreateId { id: there, channel: its_channel, port_space: PortSpace::Tcp }, &[]).unwrap();
    let handle = sibling.release(there, its_channel).unwrap();
    device.adopt(id(ADOPTED), on(ADOPTED), handle).unwrap();
    (device, there.to_bits())
}

/// Calls `run` with what [`device`] returns and with the kernel that answers its commands.
fn on_device<T>(run: impl FnOnce(KernelCm, u64, &Kernel) -> T) -> T {
    let kernel = Rc::new(Kernel::default());
    let answers = Rc::clone(&kernel);
    let answer = move |command: &[u8], into: &mut [u8]| answers.answer(command, into);
    with_kernel(answer, || {
        let (device, adopted) = device();
        run(device, adopted, &kernel)
    })
}

/// Returns the fields of all ids and channels of the device.
fn stored(device: &KernelCm) -> Vec<String> {
    let ids = device.ids.iter().map(|(key, id)| {
        let (remote, requested) = (id.remote_ece, id.requested);
        let at = (id.handle, id.uid, id.channel, id.came_from, id.space, id.datagrams, id.has_listened);
        format!("{key}: {at:?} {remote:?} {requested:?} {:?} {} {}", id.binding, id.has_address, id.has_peer)
    });
    ids.chain(device.channels.iter().map(|(key, channel)| format!("{key}: {}", channel.ids))).collect()
}

/// Keeps the event.
struct Keep(Option<RawEvent<Vec<u8>>>);

impl EventSink for Keep {
    fn take(&mut self, raw: RawEvent<&[u8]>) {
        assert!(self.0.replace(raw.map_private_data(<[u8]>::to_vec)).is_none(), "one event per read");
    }
}

/// The event of a read, what is stored after it, and the commands of the read.
type Seen = (Result<Option<RawEvent<Vec<u8>>>, Errno>, Vec<String>, Vec<u32>);

/// Reads an event of the id in this slot.
fn read(slot: u32, kind: u32, status: i32, by_short_path: bool) -> Seen {
    on_device(|mut device, adopted, kernel| {
        let uid = if slot == ADOPTED { adopted } else { id(slot).to_bits() };
        kernel.event.set(Some(Sent { uid, kind, status }));
        kernel.commands.borrow_mut().clear();
        let result = if by_short_path {
            let mut kept = Keep(None);
            device.fetch_into(on(slot), id(CHILD), &mut kept).map(|read| {
                assert_eq!(read, kept.0.is_some());
                kept.0
            })
        } else {
            device.fetch(on(slot), id(CHILD)).map(|raw| raw.map(|raw| raw.map_private_data(<[u8]>::to_vec)))
        };
        (result, stored(&device), kernel.commands.take())
    })
}

#[test]
fn an_event_is_the_same_by_both_paths() {
    let mut reported = 0;
    for slot in 0..=IDS {
        for (kind, status) in (0..=21).flat_map(|kind| [(kind, 0), (kind, -110)]) {
            let (short, long) = (read(slot, kind, status, true), read(slot, kind, status, false));
            assert_eq!(short, long, "event {kind} with status {status} of the id in slot {slot}");
            reported += usize::from(matches!(short.0, Ok(Some(_))));
        }
    }
    assert!(reported > 200, "{reported}");
}

#[test]
fn only_a_listener_that_has_moved_costs_a_migration_per_request() {
    let request = CmEvent::ConnectRequest.code();
    for (slot, commands) in [
        (LISTENER, vec![GET_EVENT, QUERY]),
        (DATAGRAM_LISTENER, vec![GET_EVENT, QUERY]),
        (MOVED_LISTENER, vec![GET_EVENT, MIGRATE_ID, QUERY]),
        (IDS, vec![GET_EVENT, DESTROY_ID, GET_EVENT]),
    ] {
        assert_eq!(read(slot, request, 0, true).2, commands, "slot {slot}");
    }
}

#[test]
fn a_slot_that_is_taken_is_not_prepared_for_a_request() {
    on_device(|mut device, _, kernel| {
        let read = |device: &mut KernelCm| device.fetch(on(LISTENER), id(CHILD)).map(|raw| raw.map(|raw| raw.id));
        let request = Sent { uid: id(LISTENER).to_bits(), kind: CmEvent::ConnectRequest.code(), status: 0 };
        assert_eq!(read(&mut device), Ok(None));
        // The slot is taken after a read has prepared it.
        let create = Call::CreateId { id: id(CHILD), channel: on(PLAIN), port_space: PortSpace::Tcp };
        device.call(&create, &[]).unwrap();
        kernel.event.set(Some(request));
        assert_eq!(read(&mut device), Err(Errno::EINVAL));
        assert!(kernel.event.get().is_some(), "the request is not read");
        device.call(&Call::Destroy { id: id(CHILD) }, &[]).unwrap();
        assert_eq!(read(&mut device), Ok(Some(id(CHILD))));
        // Its id has the slot now.
        assert_eq!(read(&mut device), Err(Errno::EINVAL));
    });
}
