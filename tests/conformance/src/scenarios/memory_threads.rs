//! Memory used by another thread while the event loop runs.

use std::sync::mpsc;
use std::thread;

use cmid_harness::failure::same;
use cmid_harness::fixture::{SOON, Side, pdl};
use cmid_harness::{Check, Env, Failure, Fixture, TestMr};
use cmid_proto::datapath::{MemoryRegion, ProtectionDomain};
use cmid_proto::memory::{Access, Change, Fallback, MemoryReason, Policy, Way};
use cmid_proto::{CmEvent, Time};

use super::memory::{READABLE, bytes, deregister, refused, register, used};

/// A large size: the kernel needs some time to pin it.
const MUCH: usize = 8 << 20;

/// Another thread registers, re-registers and deregisters slowly. Meanwhile the event loop runs complete connections,
/// and the PD stays in use until the thread is done.
pub(super) fn slow_calls_are_another_threads<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (pd, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
    let (theirs, their_new) = (pd.clone(), new.clone());
    let (sender, receiver) = mpsc::channel();
    let (allow, allowed) = mpsc::channel();
    thread::scope(|scope| -> Check {
        let worker = scope.spawn(move || -> Check {
            let mut mr = register(&theirs, vec![7; MUCH], Access::LOCAL_WRITE)?;
            step(&sender, &allowed)?;
            let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
            let (result, back) = mr.reregister_vec(Change::default().to_pd(their_new).to_buffer(vec![8; MUCH]), policy);
            same("the way", result?, Way::Anew)?;
            same("the old memory", back.map(|old| (old.len(), old[0])), Some((MUCH, 7)))?;
            step(&sender, &allowed)?;
            same("the memory", deregister(mr)?.first(), Some(&8))
        });
        for (in_use, other) in [(&pd, &new), (&new, &pd)] {
            // The thread may be registering now: the event loop continues.
            life(b)?;
            receiver.recv_timeout(SOON).map_err(|_| Failure("the other thread did not get there".into()))?;
            refused("dealloc", in_use.dealloc(), MemoryReason::InUse(1))?;
            used("the other PD", other, 0)?;
            life(b)?;
            allow.send(()).map_err(|_| Failure("the other thread is gone".into()))?;
        }
        life(b)?;
        worker.join().map_err(|_| Failure("the other thread panicked".into()))?
    })
}

/// Memory that was registered on this thread is re-registered and deregistered on another one, and serves peers
/// afterwards.
pub(super) fn memory_goes_to_another_thread_and_comes_back<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let pd = b.pd(Side::Server)?;
    let mut mr = register(&pd, bytes(1), Access::LOCAL_WRITE)?;
    let (mr, result) = thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
            let (result, _) = mr.reregister_vec(Change::default().to_access(READABLE), policy);
            (mr, result)
        });
        life(b)?;
        worker.join().map_err(|_| Failure("the other thread panicked".into()))
    })?;
    same("the way", result?, Way::Anew)?;
    same("a peer's read", b.peer_reads(&pd, mr.remote(0), 9)?, Ok(bytes(1)[..9].to_vec()))?;
    deregister(mr).map(drop)
}

/// Signals a step, and waits for permission to continue.
fn step(sender: &mpsc::Sender<()>, allowed: &mpsc::Receiver<()>) -> Check {
    sender.send(()).map_err(|_| Failure("the loop is gone".into()))?;
    allowed.recv_timeout(SOON).map_err(|_| Failure("the loop stands still".into()))
}

/// A connection from its beginning to its end.
fn life<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected()?;
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    b.destroy(Side::Server, server)?;
    b.destroy(Side::Client, client)
}
