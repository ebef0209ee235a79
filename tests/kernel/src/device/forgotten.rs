//! Ids that could not be destroyed and that the core has removed.
//!
//! No such failure of librdmacm or the kernel is known. This program replaces librdmacm's function, and the `write` of
//! the kernel backend (commands.rs), by ones that can fail.

use std::mem;

use cmid_proto::{Call, CmEvent, Device, Errno, IdKey, PortSpace};
use rdma_sys::rdma_cm_id;

use crate::commands::{failing, fails};
use crate::env::{Side, channel_key, id_key};

type DestroyId = unsafe extern "C" fn(*mut rdma_cm_id) -> i32;

/// Takes precedence over the library's function at link time.
///
/// # Safety
/// As for the library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> i32 {
    if fails() {
        // SAFETY: the calling thread's errno is always there.
        unsafe { *libc::__errno_location() = libc::EBUSY };
        return -1;
    }
    // SAFETY: the name is null-terminated.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"rdma_destroy_id".as_ptr()) };
    assert!(!real.is_null());
    // SAFETY: librdmacm's function of this name has this type.
    let real: DestroyId = unsafe { mem::transmute(real) };
    // SAFETY: as the caller promises.
    unsafe { real(id) }
}

/// The slots of such ids, and their channel's, are reused.
pub(crate) fn make_room() {
    let mut side = Side::new();
    let (listener, addr) = side.listener();
    let channel = side.channel;
    let port_space = PortSpace::Tcp;
    let child = |generation| id_key(5, generation);

    // A child that was not delivered to the application, as when its listener is destroyed.
    let client = side.resolved(addr);
    side.ok(&Call::Connect { id: client, param: crate::env::param() });
    let seen = wait(&mut side, child(1));
    assert_eq!((seen, side.device.counts()), ((child(1), CmEvent::ConnectRequest), (3, 1)));
    failing(1);
    side.fails(&Call::Destroy { id: child(1) }, Errno::EBUSY);
    // It is destroyed when the slot is needed. If that fails again, it is set aside.
    failing(1);
    assert_eq!(side.device.fetch(channel, child(2)), Ok(None), "reads go on");
    side.ok(&Call::CreateId { id: child(2), channel, port_space });
    assert_eq!(side.device.counts(), (4, 1), "the first is set aside");
    failing(1);
    side.fails(&Call::Destroy { id: child(2) }, Errno::EBUSY);
    side.ok(&Call::CreateId { id: child(3), channel, port_space });
    assert_eq!(side.device.counts(), (4, 1), "the second was destroyed when its slot was needed");

    // Its channel cannot be closed, and is set aside too. The last attempt destroys both.
    side.ok(&Call::Destroy { id: child(3) });
    side.ok(&Call::Destroy { id: client });
    side.ok(&Call::Destroy { id: listener });
    failing(1);
    side.fails(&Call::CloseChannel { channel }, Errno::EBUSY);
    failing(1);
    side.ok(&Call::OpenChannel { channel: channel_key(0, 2) });
    assert_eq!(side.device.counts(), (1, 2));
    side.ok(&Call::Destroy { id: child(1) });
    assert_eq!(side.device.counts(), (0, 1));
    side.channel = channel_key(0, 2);

    // The number of such ids is limited. At the limit there is an error, and other slots still work.
    for generation in 10..10 + 65 {
        side.ok(&Call::CreateId { id: child(generation), channel: side.channel, port_space });
        failing(1);
        side.fails(&Call::Destroy { id: child(generation) }, Errno::EBUSY);
        failing(u32::from(generation < 10 + 64));
    }
    assert_eq!(side.device.counts(), (65, 1));
    failing(u32::MAX);
    side.fails(&Call::CreateId { id: child(100), channel: side.channel, port_space }, Errno::EBUSY);
    side.ok(&Call::CreateId { id: id_key(6, 1), channel: side.channel, port_space });
    failing(0);
    side.ok(&Call::CreateId { id: child(100), channel: side.channel, port_space });
    // Ids that could not be destroyed before are destroyed when their channel is closed.
    side.ok(&Call::Destroy { id: id_key(6, 1) });
    side.ok(&Call::Destroy { id: child(100) });
    assert_eq!(side.device.counts(), (64, 1));
    side.ok(&Call::CloseChannel { channel: side.channel });
    assert_eq!(side.device.counts(), (0, 0));
}

/// Waits for the next event. Its child, if any, gets this key.
fn wait(side: &mut Side, child: IdKey) -> (IdKey, CmEvent) {
    let channel = side.channel;
    for _ in 0..1_000 {
        if let Some(event) = side.device.fetch(channel, child).expect("the channel can be read") {
            return (event.id, event.kind);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("no event")
}
