//! rdma_resolve_route(3) on systems with ibacm(8).
//!
//! On InfiniBand and RoCE, librdmacm queries ibacm for a path before the kernel. It uses a blocking socket without a
//! time limit, under a lock of the whole process (`ucma_ib_resolve` of librdmacm 44 to 64). A thread of this module
//! therefore makes these calls, one after the other. librdmacm connects to ibacm once, before its first query, and
//! never again if that fails. If ibacm is absent when the process opens its first [`Verbs`](crate::Verbs), this
//! module makes librdmacm try to connect then, so that no later call waits.

use core::net::{Ipv4Addr, SocketAddr};
use core::ptr::NonNull;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use cmid_proto::{Errno, IdKey};
use parking_lot::{Condvar, Mutex};

use crate::addr_info::{Hints, addr_info};
use crate::errno;
use crate::ffi::{self, rdma_cm_id};
use crate::librdmacm::bell::Bell;
use crate::librdmacm::raw_channel::RawChannel;

/// The paths where librdmacm looks for ibacm, as configured by rdma-core and its distributions: the port, then the
/// socket.
const PLACES: [&str; 4] = ["/run/ibacm.port", "/run/ibacm.sock", "/var/run/ibacm.port", "/var/run/ibacm.sock"];

/// How long a call waits for an rdma_resolve_route that is about to return.
const RETURNING: Duration = Duration::from_millis(50);

/// Whether ibacm was present at the first call of this function. The result does not change in the life of the process.
pub(crate) fn is_present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    *PRESENT.get_or_init(|| {
        let present = PLACES.iter().any(|place| Path::new(place).exists());
        if !present {
            // Makes librdmacm look for ibacm now, and find none. The result is ignored.
            let dst = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            let _ = addr_info(None, None, &Hints { dst, ..Hints::default() });
        }
        present
    })
}

/// One call of rdma_resolve_route on the thread.
pub(crate) struct Query {
    id: NonNull<rdma_cm_id>,
    key: IdKey,
    timeout_ms: i32,
    phase: Mutex<Phase>,
    changed: Condvar,
    bell: Arc<Bell>,
    /// The channel of the id, which stays open during the call.
    _channel: Arc<RawChannel>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// In the queue.
    Waiting,
    /// librdmacm runs the call.
    Running,
    /// The call runs, and the core has destroyed the id.
    Abandoned,
    /// The call runs, and the id has no owner. The thread destroys it.
    Orphaned,
    /// The call has returned, or was cancelled.
    Over,
}

// SAFETY: librdmacm ties an rdma_cm_id to no thread. The thread uses the id only in phases in which its owner does not
// destroy it, and makes no call that writes what rdma_resolve_route reads: addresses, channel and device.
unsafe impl Send for Query {}
// SAFETY: through a shared reference only the phase changes, which is behind a lock.
unsafe impl Sync for Query {}

impl Query {
    /// Queues the call. A failure is reported as ROUTE_ERROR, by the bell of the id's channel.
    ///
    /// # Errors
    /// `EAGAIN` if the thread cannot be created.
    ///
    /// # Safety
    /// The id is alive and on this channel, and has a device. Until [`Query::end`] succeeds or [`Query::orphan`]
    /// takes the id, no code destroys or migrates it, or makes a call that writes its addresses.
    pub(crate) unsafe fn start(
        id: NonNull<rdma_cm_id>,
        key: IdKey,
        timeout_ms: i32,
        bell: Arc<Bell>,
        channel: Arc<RawChannel>,
    ) -> Result<Arc<Self>, Errno> {
        let (phase, changed) = (Mutex::new(Phase::Waiting), Condvar::new());
        let query = Arc::new(Query { id, key, timeout_ms, phase, changed, bell, _channel: channel });
        queue()?.send(Arc::clone(&query)).map_err(|_| Errno::EAGAIN)?;
        Ok(query)
    }

    /// Ensures that the thread no longer uses the id. Cancels a queued call; waits at most [`RETURNING`] for one that
    /// is about to return.
    ///
    /// # Errors
    /// `EBUSY` while ibacm has not answered.
    pub(crate) fn end(&self) -> Result<(), Errno> {
        let mut phase = self.phase.lock();
        if *phase == Phase::Waiting {
            *phase = Phase::Over;
        }
        let still = |phase: &mut Phase| *phase != Phase::Over;
        self.changed.wait_while_for(&mut phase, still, RETURNING);
        if *phase == Phase::Over { Ok(()) } else { Err(Errno::EBUSY) }
    }

    /// Records that the core has destroyed the id. The bell then rings for each outcome.
    pub(crate) fn abandon(&self) {
        let mut phase = self.phase.lock();
        if *phase == Phase::Running {
            *phase = Phase::Abandoned;
        }
    }

    /// Leaves an id without a reader to the thread, which destroys it. Returns false if the call is not running.
    pub(crate) fn orphan(&self) -> bool {
        let mut phase = self.phase.lock();
        match *phase {
            Phase::Over => false,
            Phase::Waiting => {
                *phase = Phase::Over;
                false
            }
            Phase::Running | Phase::Abandoned | Phase::Orphaned => {
                *phase = Phase::Orphaned;
                true
            }
        }
    }

    fn make(&self) {
        {
            let mut phase = self.phase.lock();
            if *phase != Phase::Waiting {
                return;
            }
            *phase = Phase::Running;
        }
        // SAFETY: the id is alive, its channel open, and it has a device, as the caller of `start` promises.
        let outcome = errno::of_rdma(unsafe { ffi::rdma_resolve_route(self.id.as_ptr(), self.timeout_ms) });
        let before = core::mem::replace(&mut *self.phase.lock(), Phase::Over);
        self.changed.notify_all();
        match before {
            Phase::Running if outcome.is_ok() => {}
            Phase::Waiting | Phase::Running | Phase::Abandoned | Phase::Over => self.bell.ring(self.key, outcome),
            Phase::Orphaned => {
                // SAFETY: only this thread has the id, and no code reads its channel, which is still open. If it fails
                // (no known case), the id is leaked.
                let _ = unsafe { ffi::rdma_destroy_id(self.id.as_ptr()) };
            }
        }
    }
}

/// The queue of the thread. The first call starts the thread.
fn queue() -> Result<Sender<Arc<Query>>, Errno> {
    static QUEUE: Mutex<Option<Sender<Arc<Query>>>> = Mutex::new(None);
    let mut queue = QUEUE.lock();
    if let Some(sender) = &*queue {
        return Ok(sender.clone());
    }
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("cmid-acm".into()).spawn(move || serve(&receiver)).map_err(|_| Errno::EAGAIN)?;
    Ok(queue.insert(sender).clone())
}

fn serve(queries: &Receiver<Arc<Query>>) {
    for query in queries {
        query.make();
    }
}
