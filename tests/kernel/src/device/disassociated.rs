//! `RDMAV_ALLOW_DISASSOC_DESTROY`: which objects can be destroyed after the kernel has removed their device
//! (ibv_open_device(3)).
//!
//! rxe has no such state: its objects are destroyed one by one also then. So a filter of system calls (seccomp(2))
//! returns the kernel's error, EIO, and the reaction of libibverbs is checked.

use std::env;
use std::net::SocketAddr;
use std::process::Command;

use cmid_proto::datapath::prelude::*;
use cmid_proto::memory::MemoryError;
use cmid_proto::{Call, Errno};
use cmid_verbs::Access;

use crate::env::{CLIENT, Side};

const VARIABLE: &str = "RDMAV_ALLOW_DISASSOC_DESTROY";
/// `RDMA_VERBS_IOCTL` (rdma/rdma_user_ioctl_cmds.h).
const RDMA_VERBS_IOCTL: u32 = 0xc018_1b01;

/// Runs each case in a process of its own, because libibverbs reads the variable once.
pub(crate) fn destroyed() {
    for set in [false, true] {
        let mut command = Command::new(env::current_exe().expect("a path"));
        command.arg("disassociated").env_remove(VARIABLE);
        if set {
            command.env(VARIABLE, "1");
        } else {
            // Objects that cannot be destroyed stay allocated, as required. LeakSanitizer must not report them.
            let options = env::var("ASAN_OPTIONS").unwrap_or_default();
            command.env("ASAN_OPTIONS", format!("{options}:detect_leaks=0"));
        }
        assert!(command.status().expect("this program").success(), "{VARIABLE} set: {set}");
    }
}

/// The process that [`destroyed`] starts.
pub(crate) fn in_a_process() {
    let mut side = Side::new();
    let id = side.id();
    side.ok(&Call::Bind { id, addr: SocketAddr::from((CLIENT, 0)) });
    let pd = side.device.alloc_pd(id).expect("alloc_pd");
    let memory = pd.register(vec![7; 4096], Access::LOCAL_WRITE).expect("register");
    commands_fail_with_eio();
    let answers = env::var_os(VARIABLE).is_some();
    let deregistered = memory.deregister().map(drop).map_err(Errno::from);
    assert_eq!(deregistered, if answers { Ok(()) } else { Err(Errno::EIO) });
    let gone = pd.dealloc();
    assert!(if answers { gone.is_ok() } else { matches!(gone, Err(MemoryError::Refused(_))) }, "{gone:?}");
}

/// From here on each command to a verbs device fails with EIO, as after `uverbs_disassociate_api`.
fn commands_fail_with_eio() {
    let jump = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| jump(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    let equal = |value, jf| jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, 0, jf);
    let answer = |value| jump(libc::BPF_RET | libc::BPF_K, value, 0, 0);
    // The call's number and the lower half of its second argument (struct seccomp_data).
    let mut filter = [
        load(0),
        equal(libc::SYS_ioctl as u32, 3),
        load(24),
        equal(RDMA_VERBS_IOCTL, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EIO as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is valid, and read during the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}
