//! The process may not lock enough memory (RLIMIT_MEMLOCK, without CAP_IPC_LOCK).

use cmid_harness::{Check, Failure, Fixture, Side, TestMr, TestPd, make_qp, test_caps};
use cmid_proto::Acks;
use cmid_proto::ErrorWith;
use cmid_proto::datapath::MemoryRegion;
use cmid_proto::memory::{Access, Change, Fallback, Policy};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::faults;
use crate::Expected::Always;
use crate::fixture::{STANDS, in_words};

/// The limit, and a size that fits into it once but not twice.
const LIMIT: u64 = 64 << 10;
const HALF: usize = 40 << 10;

faults! { "The limit on locked memory is reached (RLIMIT_MEMLOCK, no CAP_IPC_LOCK)";
    no_locked_memory_to_register [All Fast 60] "memory is registered" => [
        Always(&[
            "the first registration: ok", "a second one: ENOMEM, the buffer comes back", "when the first is gone: ok",
            STANDS,
        ]),
    ] |s| {
        let pd = s.b.pd(Side::Client)?;
        let own = pd.clone();
        let lines = limited(move || -> Check<_> {
            let (first, second) = (registers(&own, HALF), registers(&own, HALF));
            let mut lines = vec![in_a_line("the first registration", &first), in_a_line("a second one", &second)];
            for mr in [first, second].into_iter().flatten() {
                mr.deregister_vec()?;
            }
            let again = registers(&own, HALF);
            lines.push(in_a_line("when the first is gone", &again));
            if let Ok(mr) = again {
                mr.deregister_vec()?;
            }
            Ok(lines)
        })?;
        lines.into_iter().for_each(|line| s.note(line));
        gone(pd)?;
        s.anew()
    }
    no_locked_memory_to_register_anew [Epoll Fast 60] "memory is re-registered by a new registration, to a larger buffer" => [
        Always(&["reregister: ENOMEM", "the new buffer: comes back", "the registration: Registered, 40 KiB", STANDS]),
    ] |s| {
        let pd = s.b.pd(Side::Client)?;
        let own = pd.clone();
        let lines = limited(move || -> Check<_> {
            let mut mr = registers(&own, HALF).map_err(Failure)?;
            let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
            let (result, buffer) = mr.reregister_vec(Change::default().to_buffer(vec![2; 2 * HALF]), policy);
            let back = buffer.is_some_and(|buffer| buffer.len() == 2 * HALF);
            let lines = vec![
                result.map_or_else(|error| format!("reregister: {}", error.errno()), |way| format!("reregister: {way:?}")),
                format!("the new buffer: {}", if back { "comes back" } else { "is kept" }),
                format!("the registration: {:?}, {} KiB", mr.state(), mr.len() >> 10),
            ];
            mr.deregister_vec()?;
            Ok(lines)
        })?;
        lines.into_iter().for_each(|line| s.note(line));
        gone(pd)?;
        s.anew()
    }
    no_locked_memory_for_a_queue_pair [Epoll Fast 60] "a connection with a CQ and a QP is prepared, all of it" => [
        Always(&["create_cq and create_qp, when no more can be registered (true): ok", STANDS]),
    ] |s| {
        let env = s.b.env;
        // A channel is usable only by a thread with the rights with which it was opened (`ib_safe_file_access`), so
        // this thread has its own driver.
        let line = limited(|| -> Check<_> {
            let mut b = Fixture::new(env, Acks::OnDelivery)?;
            let id = b.resolved()?;
            let pd = b.pd(Side::Client)?;
            let hold = registers(&pd, HALF).map_err(Failure)?;
            let none = registers(&pd, HALF).is_err();
            let made = b.client.drive().attach_qp(id, |device, attaching| make_qp(device, attaching, &pd, test_caps()));
            let words = made.as_ref().map_or_else(in_words, |_| "ok".to_owned());
            drop(made);
            hold.deregister_vec()?;
            b.destroy(Side::Client, id)?;
            Ok(format!("create_cq and create_qp, when no more can be registered ({none}): {words}"))
        })?;
        s.note(line);
        s.anew()
    }
}

/// Deallocates the PD before anything else happens. While a handle counts on the device, librdmacm keeps a PD that it
/// has made for the next id, and that PD would look like a leak.
fn gone(pd: impl TestPd) -> Check {
    Ok(pd.dealloc()?)
}

fn registers<P: TestPd>(pd: &P, len: usize) -> Result<P::Mr, String> {
    pd.register_vec(vec![1; len], Access::LOCAL_WRITE).map_err(|ErrorWith { given: buffer, error }| {
        let back = if buffer.len() == len { "the buffer comes back" } else { "the buffer is lost" };
        format!("{}, {back}", error.errno())
    })
}

fn in_a_line<T>(what: &str, result: &Result<T, String>) -> String {
    format!("{what}: {}", result.as_ref().map_or_else(Clone::clone, |_| "ok".to_owned()))
}

/// Runs this on a thread without CAP_IPC_LOCK. Capabilities belong to a thread.
fn limited<T: Send>(then: impl FnOnce() -> Check<T> + Send) -> Check<T> {
    let failed = |what: &str, error: rustix::io::Errno| Failure(format!("{what}: {error}"));
    let before = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(LIMIT), ..before })
        .map_err(|error| failed("setrlimit", error))?;
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut sets = capabilities(None).map_err(|error| failed("capget", error))?;
            sets.effective -= CapabilitySet::IPC_LOCK;
            set_capabilities(None, sets).map_err(|error| failed("capset", error))?;
            then()
        });
        thread.join().map_err(|_| Failure("the thread panicked".into()))?
    });
    setrlimit(Resource::Memlock, before).map_err(|error| failed("setrlimit", error))?;
    result
}
