//! Which devices the data path opens, and how long it keeps them open.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, ptr};

use cmid_proto::datapath::prelude::*;
use cmid_proto::{Call, CmEvent, Device, Errno};
use cmid_verbs::{Access, Backend, Verbs};
use rdma_sys::{ibv_alloc_pd, rdma_bind_addr, rdma_create_event_channel, rdma_create_id, rdma_port_space::RDMA_PS_TCP};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::data::returned;
use crate::env::{CLIENT, Side, backend};

/// The address of a device that is deleted in the checks.
const VETH: [u8; 4] = [10, 98, 0, 1];
/// The tolerance beyond the time that C needs. This machine's clock does not show smaller differences reliably.
const SLACK: Duration = Duration::from_millis(500);

/// Runs each check in a process of its own, because librdmacm keeps devices open.
pub(crate) fn all() {
    for part in [
        "few-descriptors",
        "few-descriptors-later",
        "descriptors-c",
        "descriptors",
        "attributes",
        "loopback",
        "orphans",
    ] {
        let status = myself(part).status().expect("this program");
        assert!(status.success(), "{part}: {status}");
        println!("ok  {part}");
    }
    let c = time_to_delete("hold-c");
    let cmid = time_to_delete("hold");
    println!("rdma link delete rxe1 while a program has a PD on rxe0: C {c:?}, cmid {cmid:?}");
    assert!(cmid < c * 3 + SLACK);
}

/// The processes that [`all`] starts.
pub(crate) fn part(name: &str) {
    match name {
        "few-descriptors" => few_descriptors(true),
        "few-descriptors-later" => few_descriptors(false),
        "descriptors" => without_descriptors(),
        "descriptors-c" => without_descriptors_in_c(),
        "orphans" => orphans(),
        "attributes" => attributes(),
        "loopback" => loopback(),
        "hold" => {
            let mut side = Side::new();
            let pd = side.on(CLIENT);
            hold();
            drop(pd);
        }
        "hold-c" => {
            pd_of_c(CLIENT);
            hold();
        }
        other => panic!("there is no part {other}"),
    }
}

/// With too few descriptors each look-up of a device fails with `EMFILE`, and is not remembered. libibverbs loads its
/// providers and librdmacm its devices in the first one.
fn few_descriptors(at_the_open: bool) {
    let open = || Verbs::open_with(backend()).map_err(|error| error.errno());
    let device = if at_the_open { with_ever_more("open", open) } else { open().expect("there are descriptors") };
    let mut side = Side::with(device);
    let id = with_ever_more("bind", || {
        let id = side.id();
        side.device.call(&Call::Bind { id, addr: SocketAddr::from((CLIENT, 0)) }, &[]).map(|()| id)
    });
    with_ever_more("alloc_pd", || side.device.alloc_pd(id).map_err(Errno::from));
    let found = with_ever_more("devices", cmid_verbs::devices);
    assert_eq!(found.len(), 3, "none is given up");
}

/// The result of `action` with 0, 1, 2, ... free descriptors, until it succeeds. Each failure is `EMFILE`.
fn with_ever_more<T>(what: &str, mut action: impl FnMut() -> Result<T, Errno>) -> T {
    for left in 0..40 {
        match with_descriptors(left, &mut action) {
            Ok(value) => {
                println!("    {what}: with {left} descriptors");
                return value;
            }
            Err(errno) => assert_eq!(errno, Errno::EMFILE, "{what} with {left} descriptors"),
        }
    }
    panic!("{what}: 40 descriptors are not enough");
}

/// Without a free descriptor a PD is made as in C, and librdmacm drops no device for it.
fn without_descriptors() {
    let mut side = Side::new();
    let (mine, other) = (side.id(), side.id());
    side.ok(&Call::Bind { id: mine, addr: SocketAddr::from((CLIENT, 0)) });
    if backend() == Backend::Kernel {
        // The device is opened for its first PD. Nothing is lost without a descriptor for that.
        let pd = with_descriptors(0, || side.device.alloc_pd(mine)).map(drop);
        println!("    alloc_pd without a descriptor: {pd:?}");
        assert!(pd.is_err());
    }
    let _open = (backend() == Backend::Kernel).then(|| side.device.alloc_pd(mine).expect("there are descriptors"));
    for left in [0, 1] {
        let pd = with_descriptors(left, || side.device.alloc_pd(mine)).expect("as in C");
        let register = || pd.register(vec![0; 64], Access::empty()).map_err(Errno::from);
        returned(with_descriptors(left, register).expect("as in C"));
        let cq = with_descriptors(left, || side.device.create_cq(mine, 4).map(drop).map_err(Errno::from));
        assert_eq!(cq, if left == 0 { Err(Errno::EMFILE) } else { Ok(()) });
    }
    side.ok(&Call::Bind { id: other, addr: SocketAddr::from((VETH, 0)) });
    side.device.alloc_pd(other).expect("librdmacm has not given up the device");
}

fn without_descriptors_in_c() {
    for left in [0, 1] {
        let id = id_of_c(CLIENT);
        // SAFETY: the id is alive and bound to a device.
        let pd = with_descriptors(left, || unsafe { ibv_alloc_pd((*id).verbs) });
        assert!(!pd.is_null(), "with {left} descriptors: {}", std::io::Error::last_os_error());
    }
}

/// What a device can do, its ports and its GIDs are known without opening another one.
fn attributes() {
    let mut side = Side::new();
    let id = side.id();
    side.ok(&Call::Bind { id, addr: SocketAddr::from((CLIENT, 0)) });
    let nic = side.device.device_of(id).expect("it has a device");
    let attrs = nic.attrs().expect("they can be queried");
    println!("    {attrs:?}");
    for port in 1..=attrs.ports {
        println!("    {:?}", nic.port_attrs(port).expect("it can be queried"));
        let gids = nic.gids(port).expect("they can be queried");
        assert!(gids.iter().any(|gid| gid.ip() == std::net::IpAddr::from(CLIENT)), "{gids:?}");
    }
    let open = std::fs::read_dir("/proc/self/fd").expect("the descriptors").filter_map(Result::ok);
    let devices = open
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .filter(|path| path.to_string_lossy().contains("uverbs"));
    assert_eq!(devices.count(), 1, "of three devices");
}

/// An id that has a device, but none of its addresses.
fn loopback() {
    let mut side = Side::new();
    let id = side.id();
    let dst = SocketAddr::from(([127, 0, 0, 1], 7));
    side.ok(&Call::ResolveAddr { id, src: None, dst, timeout_ms: 2_000 });
    side.expect(CmEvent::AddrResolved);
    println!("    local address {:?}", side.device.local_addr(id));
    side.device.alloc_pd(id).expect("it has a device");
}

/// The device is removed under a PD and an MR, after their ids and their `Verbs` were dropped.
fn orphans() {
    let mut side = Side::new();
    let pd = side.on(VETH);
    let memory = pd.register(vec![7; 4096], Access::LOCAL_WRITE).expect("register");
    let kept = pd.register(vec![8; 4096], Access::LOCAL_WRITE).expect("register");
    drop(side);
    let mut deleting = rdma(&["link", "delete", "rxe1"]);
    gone();
    println!("    register: {:?}", pd.register(vec![0; 8], Access::empty()).map(drop));
    assert_eq!(returned(memory), [7; 4096]);
    assert!(deleting.try_wait().expect("a child").is_none(), "the device is open while there is a PD");
    drop(kept);
    drop(pd);
    cmid_verbs::devices().expect("rxe0");
    let started = Instant::now();
    assert!(deleting.wait().expect("a child").success());
    println!("    rdma(8) ended {:?} after the last object", started.elapsed());
    add();
}

/// The time to delete the device while the program of that name runs.
fn time_to_delete(holder: &str) -> Duration {
    let mut child = myself(holder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    let started = Instant::now();
    let mut deleting = rdma(&["link", "delete", "rxe1"]);
    while deleting.try_wait().expect("a child").is_none() {
        assert!(started.elapsed() < Duration::from_secs(20), "{holder}: the device is not let go of");
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = started.elapsed();
    assert!(child.try_wait().expect("a child").is_none(), "{holder} has ended");
    drop(child.stdin.take());
    assert!(child.wait().expect("a child").success());
    add();
    took
}

fn hold() {
    println!("ready");
    std::io::stdout().flush().expect("a pipe");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a pipe");
}

/// Calls `rdma_bind_addr` like a C program.
fn id_of_c(addr: [u8; 4]) -> *mut rdma_sys::rdma_cm_id {
    let mut sin = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr) },
        sin_zero: [0; 8],
    };
    let mut id = ptr::null_mut();
    // SAFETY: the channel is new, and stays; `id` and the address have places.
    unsafe {
        let channel = rdma_create_event_channel();
        assert!(!channel.is_null());
        assert_eq!(rdma_create_id(channel, &raw mut id, ptr::null_mut(), RDMA_PS_TCP), 0);
        assert_eq!(rdma_bind_addr(id, (&raw mut sin).cast()), 0);
    }
    id
}

fn pd_of_c(addr: [u8; 4]) {
    let id = id_of_c(addr);
    // SAFETY: the id is alive and bound to a device.
    assert!(!unsafe { ibv_alloc_pd((*id).verbs) }.is_null());
}

/// Runs `action` while this process can open at most `left` more descriptors.
fn with_descriptors<T>(left: u64, action: impl FnOnce() -> T) -> T {
    let free = std::fs::File::open("/dev/null").expect("a descriptor");
    let lowest = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&free)).expect("a descriptor");
    drop(free);
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(lowest + left), ..before }).expect("lowering");
    let result = action();
    setrlimit(Resource::Nofile, before).expect("raising");
    result
}

fn myself(part: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a path"));
    command.args(["opened", part]);
    command
}

pub(crate) fn rdma(arguments: &[&str]) -> Child {
    Command::new("rdma").args(arguments).spawn().expect("rdma(8)")
}

/// Waits until librdmacm has noticed that the device is gone. It then closes unused devices.
fn gone() {
    let started = Instant::now();
    while cmid_verbs::devices().expect("rxe0").iter().any(|device| device.name == "rxe1") {
        assert!(started.elapsed() < Duration::from_secs(10), "the device does not go");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn add() {
    assert!(rdma(&["link", "add", "rxe1", "type", "rxe", "netdev", "veth1"]).wait().expect("a child").success());
}

impl Side {
    /// A PD on the device of this address. Its id is destroyed.
    fn on(&mut self, addr: [u8; 4]) -> cmid_verbs::Pd {
        let id = self.id();
        self.ok(&Call::Bind { id, addr: SocketAddr::from((addr, 0)) });
        let pd = self.device.alloc_pd(id).expect("alloc_pd");
        self.ok(&Call::Destroy { id });
        pd
    }
}
