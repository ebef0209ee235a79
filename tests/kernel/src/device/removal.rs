//! The device is removed under an established connection and its data path.

use std::ffi::{c_int, c_void};
use std::mem;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cmid_proto::datapath::{PostReason, WcOpcode, prelude::*};
use cmid_proto::memory::{MemoryError, MemoryReason, MrState, PdState, Policy};
use cmid_proto::{Call, CmEvent, Device, Errno, ErrorWith, IdKey};
use cmid_verbs::{Access, Backend, Change, Completion, WcStatus};
use rdma_sys::rdma_cm_id;

use crate::data::{polled, returned, success, why};
use crate::env::{End, Pair, SERVER, Side, backend, group_key, param};
use crate::memory::mapped;

/// Checks what happens to memory. Both Linux 6.1 and 6.12 let a program destroy its objects on a removed device:
/// rxe deregisters, and the memory is returned or freed as usual.
///
/// `device removal` deletes `rxe0`. The command ends only with this process: rxe cannot revoke an open device,
/// and librdmacm closes a removed device only when it next lists the devices.
pub(crate) fn device_removed() {
    let unread = Unread::new();
    let mut pair = Pair::connected();
    let (mut idle, group, addr) = (Side::new(), group_key(4), SocketAddr::from(([239, 1, 2, 4], 0)));
    let member = idle.bound(SERVER);
    idle.ok(&Call::Join { id: member, group, addr, send_only: false });
    let mut racing = Side::new();
    let raced = racing.bound(SERVER);
    racing.ok(&Call::Join { id: raced, group: group_key(5), addr, send_only: false });
    let mut memory = pair.s.pd.register(vec![7; 4096], Access::LOCAL_WRITE).expect("register");
    let (page, freed) = mapped(4096);
    let other = pair.s.pd.register(page, Access::LOCAL_WRITE).expect("register");
    let (page, lent_freed) = mapped(4096);
    let lent = pair.s.pd.register(page, Access::LOCAL_WRITE | Access::MW_BIND).expect("register");
    let mut window = pair.s.pd.alloc_mw().expect("alloc_mw");
    pair.s.qp.post_bind(3, &mut window, &lent, 0..8, Access::REMOTE_READ).expect("post_bind");
    success(polled(&mut pair.s.cq), 3, WcOpcode::BIND_MW);
    pair.s.qp.post_recv(1, memory.sge(0..4096)).expect("post_recv");
    pair.s.qp.post_recv(2, other.sge(0..4096)).expect("post_recv");
    // Bound to a block through one QP, and perhaps through another one.
    let (second_c, mut second) = pair.second();
    let pool = pair.s.pd.pool(vec![0; 64], 64, Access::MW_BIND).expect("pool");
    let mut shared = pair.s.pd.alloc_mw().expect("alloc_mw");
    let block = pool.take().expect("a block");
    pair.s.qp.post_bind_block(4, &mut shared, block, Access::REMOTE_WRITE).expect("post_bind_block");
    success(polled(&mut pair.s.cq), 4, WcOpcode::BIND_MW);
    second.qp.post_bind(5, &mut shared, &lent, 0..8, Access::REMOTE_READ).expect("post_bind");
    assert_ne!(polled(&mut second.cq).status, WcStatus::SUCCESS);
    let nic = pair.client.device.device_of(pair.c.id).expect("device_of");
    assert_eq!(nic.name(), "rxe0");
    let mut asynchronous = pair.client.device.async_events(&nic).expect("async_events");
    assert_eq!(asynchronous.next_event(), Ok(None));
    let mut deleting = Command::new("rdma").args(["link", "delete", "rxe0"]).spawn().expect("rdma(8)");
    let mut removed = [false; 2];
    for (side, removed) in [&mut pair.client, &mut pair.server].into_iter().zip(&mut removed) {
        while let Some(seen) = side.event_within(Duration::from_secs(5)) {
            println!("{:?} of {}, status {}", seen.kind, seen.id, seen.status);
            *removed |= seen.kind == CmEvent::DeviceRemoval;
        }
    }
    assert_eq!(removed, [true, true]);
    unread.read();
    // rxe cannot revoke an open device, so the kernel reports no DEVICE_FATAL (`ib_uverbs_remove_one`).
    assert_eq!(asynchronous.next_event(), Ok(None));
    drop(asynchronous);

    // In librdmacm, this would free the record that the unread event refers to.
    idle.fails(&Call::Leave { id: member, group, addr }, Errno::ENXIO);
    assert_eq!(idle.expect(CmEvent::MulticastJoin).group, Some(group));
    idle.expect(CmEvent::DeviceRemoval);
    idle.fails(&Call::Leave { id: member, group, addr }, Errno::ENXIO);
    idle.fails(&Call::Join { id: member, group, addr, send_only: false }, Errno::ENXIO);
    idle.ok(&Call::Destroy { id: member });

    match backend() {
        Backend::Librdmacm => left_as_it_goes(&mut racing, raced, addr),
        Backend::Kernel => nothing_is_lost(&mut racing, raced, addr),
        other => panic!("{other}"),
    }
    pair.client.fails(&Call::Disconnect { id: pair.c.id }, Errno::ENXIO);
    pair.client.fails(&Call::Connect { id: pair.c.id, param: param() }, Errno::ENXIO);
    // The removal applies to the device's memory: only deregistration is left, also for memory in flight.
    let refused = |error: MemoryError| match error {
        MemoryError::Refused(refused) => Some((refused.reason, refused.errno())),
        MemoryError::Register { .. } | MemoryError::Failed(_) | MemoryError::Dealloc(_) | MemoryError::Fault(_) => None,
    };
    let gone = Some((MemoryReason::DeviceGone, Errno::EIO));
    assert_eq!(pair.s.pd.state(), PdState::Stranded);
    let error = pair.s.pd.register(vec![0; 8], Access::empty()).map(drop).expect_err("the device is gone").error;
    assert_eq!(refused(error), gone);
    let outcome = memory.reregister(Change::default().to_access(Access::empty()), Policy::default());
    assert_eq!((outcome.result.map_err(refused), memory.state()), (Err(gone), MrState::Unusable));
    assert_eq!(why(pair.s.qp.post_recv(1, memory.sge(0..1))), Err(PostReason::NotRegistered));
    println!("alloc_pd: {:?}", pair.client.device.alloc_pd(pair.c.id).map(drop));
    println!("state: {:?}", pair.s.qp.state());
    println!("take_notifications: {:?}", pair.s.cq.take_notifications());

    // What such a window had belongs to both QPs then: the peer may be writing to it.
    drop(shared);
    pair.server.ok(&Call::Destroy { id: second.id });
    drop((second, second_c));
    assert_eq!(pool.available(), 0);

    // A poll may still write to memory in flight: it is kept until the QP is destroyed and the CQ was polled empty.
    let users = pair.s.pd.users();
    let ErrorWith { given: memory, error } = memory.deregister().map(drop).expect_err("it is in flight");
    assert_eq!(refused(error), Some((MemoryReason::InFlight, Errno::EBUSY)));
    drop(other);
    assert_eq!((pair.s.pd.users(), freed.load(Ordering::Relaxed)), (users, 0));
    // Memory with a bound window has to wait for the window, as usual.
    drop(lent);
    assert_eq!((pair.s.pd.users(), lent_freed.load(Ordering::Relaxed)), (users, 0));
    window.dealloc().expect("ibv_dealloc_mw");
    assert_eq!((pair.s.pd.users(), lent_freed.load(Ordering::Relaxed)), (users - 2, 1));

    let Pair { mut client, mut server, c, s: End { id, pd, mut cq, qp }, .. } = pair;
    server.ok(&Call::Destroy { id });
    drop(qp);
    assert_eq!(pool.available(), 1);
    drop(pool);
    assert_eq!((pd.users(), freed.load(Ordering::Relaxed)), (2, 0));
    assert_eq!(cq.poll(&mut [Completion::default(); 4]), Ok(0));
    assert_eq!((pd.users(), freed.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(returned(memory), [7; 4096]);
    assert_eq!(pd.users(), 0);
    println!("memory: deregistered, dropped in flight, dropped with a window: all of it is back");
    client.ok(&Call::Destroy { id: c.id });
    drop((client, server, c, pd, cq));
    println!("all is dropped; rdma(8) has ended: {}", deleting.try_wait().expect("a child").is_some());
}

/// Events that are unread when the device goes.
struct Unread {
    lookup: (Side, IdKey),
    route: (Side, IdKey),
    listener: (Side, IdKey),
    _clients: Side,
}

impl Unread {
    fn new() -> Self {
        let [mut lookup, mut route, mut listener, mut clients] = [(); 4].map(|()| Side::new());
        let (listening, dst) = listener.listener();
        for _ in 0..20 {
            let id = clients.resolved(dst);
            clients.ok(&Call::Connect { id, param: param() });
        }
        let resolving = lookup.id();
        lookup.ok(&Call::ResolveAddr { id: resolving, src: None, dst, timeout_ms: 2_000 });
        let routing = route.id();
        route.ok(&Call::ResolveAddr { id: routing, src: None, dst, timeout_ms: 2_000 });
        route.expect(CmEvent::AddrResolved);
        route.ok(&Call::ResolveRoute { id: routing, timeout_ms: 2_000 });
        std::thread::sleep(Duration::from_millis(500));
        Unread {
            lookup: (lookup, resolving),
            route: (route, routing),
            listener: (listener, listening),
            _clients: clients,
        }
    }

    /// The kernel refuses the query about an id without its device: a lookup has failed, and requests are not reported.
    fn read(self) {
        for ((mut side, id), error) in [(self.lookup, CmEvent::AddrError), (self.route, CmEvent::RouteError)] {
            let seen = side.event_within(Duration::from_secs(5)).expect("the lookup has ended");
            assert_eq!((seen.id, seen.kind, seen.status), (id, error, -1));
            assert_eq!(side.expect(CmEvent::DeviceRemoval).id, id);
            side.ok(&Call::Destroy { id });
        }
        let (mut side, id) = self.listener;
        assert_eq!(side.expect(CmEvent::DeviceRemoval).id, id, "and none of the 20 requests");
        side.quiet(50);
        assert_eq!(side.device.counts(), (1, 1));
        side.ok(&Call::Destroy { id });
    }
}

/// The kernel backend has no record that the unread MULTICAST_JOIN could refer to: the group is left before or after.
fn nothing_is_lost(side: &mut Side, member: IdKey, addr: SocketAddr) {
    side.fails(&Call::Leave { id: member, group: group_key(5), addr }, Errno::ENXIO);
    assert_eq!(side.expect(CmEvent::MulticastJoin).group, Some(group_key(5)));
    assert_eq!(side.expect(CmEvent::DeviceRemoval).id, member);
    side.fails(&Call::Leave { id: member, group: group_key(5), addr }, Errno::ENXIO);
    side.ok(&Call::Destroy { id: member });
}

/// The device is removed after the check for its presence, and before the group is left. librdmacm then frees its
/// record of the group, which the unread MULTICAST_JOIN refers to.
fn left_as_it_goes(side: &mut Side, member: IdKey, addr: SocketAddr) {
    STILL_THERE.store(true, Ordering::SeqCst);
    side.fails(&Call::Leave { id: member, group: group_key(5), addr }, Errno::ENXIO);
    STILL_THERE.store(false, Ordering::SeqCst);
    assert_eq!(side.expect(CmEvent::DeviceRemoval).id, member, "and no event of the group");
    side.quiet(50);
    side.fails(&Call::Leave { id: member, group: group_key(5), addr }, Errno::ENXIO);
    side.fails(&Call::Bind { id: member, addr }, Errno::ENXIO);
    let channel = side.channel;
    side.fails(&Call::Migrate { id: member, from: channel, to: channel }, Errno::ENXIO);
    assert_eq!(side.device.local_addr(member), Err(Errno::ENXIO));
    side.ok(&Call::Destroy { id: member });
    side.ok(&Call::CloseChannel { channel });
}

/// Whether the check returns that the device is present.
static STILL_THERE: AtomicBool = AtomicBool::new(false);

type SetOption = unsafe extern "C" fn(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;

/// Takes precedence over the library's function at link time. cmid checks the device's presence with a nonexistent
/// level of options.
///
/// # Safety
/// As for the library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    if level == c_int::MAX && STILL_THERE.load(Ordering::SeqCst) {
        // SAFETY: the calling thread's errno is always there.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        return -1;
    }
    // SAFETY: the name is null-terminated.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"rdma_set_option".as_ptr()) };
    assert!(!real.is_null());
    // SAFETY: librdmacm's function of this name has this type.
    let real: SetOption = unsafe { mem::transmute(real) };
    // SAFETY: as the caller promises.
    unsafe { real(id, level, name, value, len) }
}
