//! What is reported where the kernel's interface, or the node of a device, is missing or may not be used.
//!
//! Run it by `cargo xtask softroce -- target/release/kernel-open`, in the VM only: it changes `/dev` and `/sys`, and
//! removes the module `rdma_ucm` in the end.
#![expect(unsafe_code, reason = "fork(2)")]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use cmid_proto::datapath::{CreateReason, DataPath as _, DeviceName};
use cmid_proto::{Acks, ChannelKey, Drive, Errno, IdKey, Limits, PortSpace};
use cmid_verbs::{Backend, KernelCm, OpenError, Verbs};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{Uid, set_thread_res_uid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

const NODE: &str = "/dev/infiniband/rdma_cm";
const ASIDE: &str = "/dev/infiniband/rdma_cm-aside";
const ABI_VERSION: &str = "/sys/class/misc/rdma_cm/abi_version";

/// The checks that change their process: each runs in a process of its own.
const CHECKS: [(&str, fn()); 6] = [
    ("any user may open it", any_user),
    ("a sandbox forbids write(2)", sandbox),
    ("a sandbox forbids write(2) after the open", sandbox_after_open),
    ("the credentials change after the open", credentials),
    ("another thread has changed its credentials", threads),
    ("a forked child uses it", forked),
];

fn main() {
    if let Some(name) = env::args().nth(1) {
        let (_, check) = CHECKS.iter().find(|(known, _)| *known == name).expect("a check");
        return check();
    }
    for (name, _) in CHECKS {
        in_a_process(name);
    }
    no_permission();
    no_node();
    device_nodes();
    foreign_abi();
    no_module();
    println!("{} checks passed", CHECKS.len() + 5);
}

fn in_a_process(name: &str) {
    let this = env::current_exe().expect("a path");
    let status = Command::new(this).arg(name).status().expect("started");
    assert!(status.success(), "{name}: {status}");
    println!("{name}: passed");
}

/// The error of an open, which must fail. Prints it.
fn error() -> OpenError {
    let error = KernelCm::open(1).expect_err("the open fails");
    println!("    {error}");
    error
}

/// As [`error`]. Over librdmacm the error is the same.
fn error_of_both() -> OpenError {
    let (own, librdmacm) = (error(), Verbs::open_with(Backend::Librdmacm).expect_err("the open fails"));
    assert_eq!(librdmacm, own);
    own
}

/// The reason of a PD on a new device, which must fail at once.
fn reason_of_a_pd() -> CreateReason {
    let mut drive = Drive::new(Verbs::open().expect("the connection manager opens"), Limits::default());
    let channel = drive.open_channel(Acks::OnDelivery).expect("a channel");
    let id = drive.create_id(Some(channel), PortSpace::Tcp).expect("an id");
    drive.bind(id, ([10, 99, 0, 1], 0).into()).expect("an address of the device");
    let begun = Instant::now();
    let error = drive.device_mut().alloc_pd(id).map(drop).expect_err("the device does not open");
    assert!(begun.elapsed() < Duration::from_secs(1), "libibverbs waits for the node");
    println!("    {error}");
    error.reason()
}

fn become_nobody() {
    let nobody = Uid::from_raw(65534);
    set_thread_res_uid(nobody, nobody, nobody).expect("setresuid");
}

/// A device with a channel and an id.
struct Opened {
    drive: Drive<KernelCm>,
    channel: ChannelKey,
    id: IdKey,
}

impl Opened {
    fn new() -> Self {
        let mut drive = Drive::new(KernelCm::open(1).expect("the node opens"), Limits::default());
        let channel = drive.open_channel(Acks::OnDelivery).expect("a channel");
        let id = drive.create_id(Some(channel), PortSpace::Tcp).expect("an id");
        Opened { drive, channel, id }
    }

    /// The errno of each of three commands on the channel: with an answer, without one, and the end of an id.
    fn errors(&mut self) -> [Errno; 3] {
        let created = self.drive.create_id(Some(self.channel), PortSpace::Tcp).expect_err("no id");
        let bound = self.drive.bind(self.id, ([127, 0, 0, 1], 0).into()).expect_err("not bound");
        let destroyed = self.drive.destroy_now(self.id).expect_err("not destroyed");
        println!("    {created}; {bound}; {destroyed}");
        [created.errno(), bound.errno(), destroyed.errno()]
    }
}

fn any_user() {
    become_nobody();
    let mut opened = Opened::new();
    opened.drive.destroy_now(opened.id).expect("destroyed");
}

/// Installs a filter by which write(2) to all but the standard descriptors fails with `EPERM`.
fn forbid_writes() {
    let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Gt, 2).expect("a condition");
    let rule = SeccompRule::new(vec![other]).expect("a rule");
    let rules = BTreeMap::from([(libc::SYS_write, vec![rule])]);
    let arch = env::consts::ARCH.try_into().expect("a known architecture");
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    apply_filter(&program).expect("seccomp(2)");
}

fn sandbox() {
    forbid_writes();
    assert_eq!(error(), OpenError::WriteRefused(Errno::EPERM));
}

fn sandbox_after_open() {
    let mut opened = Opened::new();
    forbid_writes();
    assert_eq!(opened.errors(), [Errno::EPERM; 3]);
}

/// `ib_safe_file_access`: a channel works with the credentials that it was opened with. A new one works.
fn credentials() {
    let mut before = Opened::new();
    become_nobody();
    assert_eq!(before.errors(), [Errno::EACCES; 3]);
    drop(before);
    let mut after = Opened::new();
    after.drive.destroy_now(after.id).expect("destroyed");
}

/// The kernel compares credentials by their address. Each thread that changes its own has a copy of its own, as after
/// setuid(2) of glibc.
fn threads() {
    let (shares, own) = (thread::spawn(Opened::new), thread::spawn(|| (become_nobody(), Opened::new()).1));
    let (mut shared, mut own) = (shares.join().expect("a device"), own.join().expect("a device"));
    shared.drive.destroy_now(shared.id).expect("destroyed by another thread with the same credentials");
    assert_eq!(own.errors(), [Errno::EACCES; 3]);
}

fn forked() {
    let mut opened = Opened::new();
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            assert_eq!(opened.errors(), [Errno::EACCES; 3]);
            // The parent's ids live on: the child's copy of the descriptor is not the last.
            std::process::exit(0);
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` is a place for the result.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child");
            opened.drive.destroy_now(opened.id).expect("destroyed");
        }
    }
}

/// Runs a check in a thread without permissions.
fn as_nobody(check: fn()) {
    thread::spawn(move || (become_nobody(), check()).1).join().expect("the check passes");
}

fn no_permission() {
    fs::set_permissions(NODE, Permissions::from_mode(0o600)).expect("chmod");
    as_nobody(|| assert_eq!(error_of_both(), OpenError::NoPermission(NODE.into())));
    fs::set_permissions(NODE, Permissions::from_mode(0o666)).expect("chmod");
    println!("no permission: passed");
}

fn no_node() {
    fs::rename(NODE, ASIDE).expect("the node goes");
    assert_eq!(error_of_both(), OpenError::NoNode(NODE.into()));
    fs::write(NODE, []).expect("a file in its place");
    assert_eq!(error_of_both(), OpenError::WrongNode(NODE.into()));
    fs::rename(ASIDE, NODE).expect("the node is back");
    println!("no node, and a file in its place: passed");
}

fn of_node(errno: Errno) -> CreateReason {
    CreateReason::Node { node: DeviceName::new(b"uverbs0"), errno }
}

/// The nodes of the devices, which the data path opens.
fn device_nodes() {
    let all = fs::read_dir("/dev/infiniband").expect("nodes").map(|entry| entry.expect("a node").path());
    let nodes: Vec<_> = all.filter(|path| path.to_string_lossy().contains("uverbs")).collect();
    let each = |change: fn(&Path)| nodes.iter().for_each(|node| change(node));
    each(|node| fs::set_permissions(node, Permissions::from_mode(0o600)).expect("chmod"));
    as_nobody(|| assert_eq!(reason_of_a_pd(), of_node(Errno::EACCES)));
    each(|node| fs::set_permissions(node, Permissions::from_mode(0o666)).expect("chmod"));
    each(|node| fs::rename(node, node.with_extension("aside")).expect("the node goes"));
    assert_eq!(reason_of_a_pd(), of_node(Errno::ENOENT));
    each(|node| fs::rename(node.with_extension("aside"), node).expect("the node is back"));
    println!("a device's node is forbidden, or missing: passed");
}

fn foreign_abi() {
    let version = Path::new("/dev/shm/abi_version");
    fs::write(version, "5\n").expect("a file");
    mount_bind(version, ABI_VERSION).expect("mount");
    assert_eq!(error(), OpenError::ForeignAbi("5".into()));
    unmount(ABI_VERSION, UnmountFlags::empty()).expect("umount");
    KernelCm::open(1).expect("the kernel has version 4");
    println!("a foreign ABI version: passed");
}

fn no_module() {
    rustix::system::delete_module(c"rdma_ucm", libc::O_NONBLOCK).expect("the module goes");
    assert_eq!(error_of_both(), OpenError::NoModule);
    println!("no module: passed");
}
