//! `ibv_rereg_mr` where libibverbs handles forks (ibv_fork_init(3)): it advises the kernel to keep registered pages
//! from children, and does so for the new memory before it calls the provider. From rdma-core 51 on libibverbs leaves
//! that to a kernel that copies pinned pages at a fork (5.12 and later): then it gives no advice, and calls the
//! provider.

use std::fs;
use std::process::Command;

use cmid_proto::Errno;
use cmid_proto::datapath::prelude::*;
use cmid_proto::memory::{
    Code, Fallback, MemoryError, MemoryFailure, MemoryStep, MrState, Policy, Provider, Valid, Way,
};
use cmid_verbs::{Access, Change, Reregistered};

use crate::data::bytes;
use crate::env::{SERVER, Side};
use crate::memory::{PAGE, mapped, unmapped};

/// Runs the check in another process, because libibverbs decides this once per process.
pub(crate) fn advised() {
    let this = std::env::current_exe().expect("a path");
    let status = Command::new(this).arg("forks").env("RDMAV_FORK_SAFE", "1").status().expect("started");
    assert!(status.success(), "{status}");
}

/// `device forks`, with `RDMAV_FORK_SAFE=1` in the environment.
pub(crate) fn in_a_process_that_asked() {
    let mut side = Side::new();
    let id = side.bound(SERVER);
    let pd = side.device.alloc_pd(id).expect("alloc_pd");
    let mut mr = pd.register(mapped(PAGE).0, Access::LOCAL_WRITE).expect("register");
    let advises = kept_from_children(mr.addr());
    let reason = "libibverbs does not look after forks, and the kernel does not copy: is RDMAV_FORK_SAFE set?";
    assert!(advises || kernel_copies(), "{reason}");

    // For memory that can be advised on, the provider is called, which cannot re-register. The advice is reverted.
    let failure = |code, errno| {
        MemoryError::Failed(MemoryFailure { step: MemoryStep::Reregister(code), errno, valid: Valid::Old })
    };
    let anew = Policy { fallback: Fallback::Anew, provider: Provider::Unknown };
    let old = mr.addr();
    let Reregistered { result, buffer } = mr.reregister(Change::default().to_buffer(mapped(PAGE).0), Policy::default());
    assert_eq!(result, Err(failure(Code::Cmd, Errno::EOPNOTSUPP)));
    let outcome = mr.reregister(Change::default().to_buffer(buffer.expect("it comes back")), anew);
    assert_eq!((outcome.result, outcome.buffer.map(|old| old.len())), (Ok(Way::Anew), Some(PAGE)));
    assert_ne!(mr.addr(), old);
    assert_eq!(kept_from_children(mr.addr()), advises);

    // Stage 5 of ibv_rereg_mr: the advice fails, so the provider is not called, and nothing is registered anew. This
    // check is last and runs once, because libibverbs then counts one use too few of every page from there to the
    // next registered one (`ibv_madvise_range` rolls back what it has merged), and gives no advice where it should.
    let (addr, key) = (mr.addr(), mr.rkey());
    let (policy, failed) = if advises {
        (anew, failure(Code::DontForkNew, Errno::ENOMEM))
    } else {
        (Policy::default(), failure(Code::Cmd, Errno::EOPNOTSUPP))
    };
    let Reregistered { result, buffer } = mr.reregister(Change::default().to_buffer(unmapped()), policy);
    assert_eq!(result, Err(failed));
    assert_eq!(buffer.map(|buffer| buffer.len()), Some(PAGE), "the device has not heard of it");
    assert_eq!((mr.addr(), mr.rkey(), mr.state()), (addr, key, MrState::Registered));
    assert_eq!((mr.write(0, &[7]), bytes(&mr, 0)), (Ok(()), [7]));
    assert!(mr.deregister().is_ok());
    println!("             {failed:?}; the old registration is valid");
}

/// Whether the kernel copies the pages that devices write to when a process forks (rdma-system(8): copy-on-fork).
fn kernel_copies() -> bool {
    let shown = Command::new("rdma").args(["system", "show"]).output().expect("rdma(8)");
    String::from_utf8_lossy(&shown.stdout).contains("copy-on-fork on")
}

/// Whether the mapping at this address has the flag that `madvise(MADV_DONTFORK)` sets (proc_pid_smaps(5)).
fn kept_from_children(addr: u64) -> bool {
    let mut inside = false;
    for line in fs::read_to_string("/proc/self/smaps").expect("smaps").lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let ends = range.map(|(from, to)| (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)));
        if let Some((Ok(from), Ok(to))) = ends {
            inside = (from..to).contains(&addr);
        } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
            return flags.split_whitespace().any(|flag| flag == "dc");
        }
    }
    panic!("nothing is mapped at {addr:#x}");
}
