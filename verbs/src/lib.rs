//! The hardware device of cmid: connection management on the kernel's own interface or through librdmacm, and a safe
//! data path over libibverbs.
//!
//! ```text
//!  a driver of cmid: Drive ( Core )              application
//!       |  Call       ^  RawEvent                   |  posts, polls
//!       v             |                             v
//!     Verbs: /dev/infiniband/rdma_cm,         Pd, Mr, Cq, Qp: libibverbs
//!            or librdmacm                           |
//!       +------------- the kernel ------------------+----- the device
//! ```
//!
//! # What it does
//!
//! [`Verbs`] implements [`cmid_proto::Device`]: it makes the calls that the core requests, and reports the events of
//! the event channels. It copies each event, with its private data, and acknowledges it at once. No event is ever
//! outstanding, so `rdma_destroy_id` and `rdma_migrate_id`, which wait for outstanding events, do not wait.
//! The crate also provides the data path objects: [`Pd`], [`Mr`], [`Mw`], [`Cq`], [`Qp`], and [`Ah`] for datagrams. It
//! lists the [`devices`].
//!
//! Memory follows the state machines of [`cmid_proto::memory`]. An [`Mr`] owns its [`Buffer`]. It can be registered,
//! re-registered (ibv_rereg_mr(3), or a new registration where the provider cannot) and deregistered. After each
//! failure it records which registration is valid. Work in flight pins it. The calls take the time that the kernel
//! needs to pin pages; any thread may make them.
//!
//! ```no_run
//! use cmid_proto::{Drive, Error, IdKey};
//! use cmid_proto::datapath::Attaching;
//! use cmid_verbs::{Access, Caps, CreateError, Qp, Verbs, datapath::prelude::*};
//! use std::net::SocketAddr;
//!
//! fn serve(drive: &mut Drive<Verbs>, id: IdKey) -> Result<(), Error> {
//!     drive.bind(id, SocketAddr::from(([10, 99, 0, 1], 7471)))?;
//!     drive.attach_qp(id, open).map(drop) // it has a device now
//! }
//!
//! fn open(device: &mut Verbs, attaching: Attaching<'_>) -> Result<Qp, CreateError> {
//!     let id = attaching.id();
//!     let pd = device.alloc_pd(id)?;
//!     let memory = pd.register(vec![0; 4096], Access::LOCAL_WRITE)?;
//!     let cq = device.create_cq(id, 32)?;
//!     let caps = Caps { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
//!     let mut qp = device.create_qp(attaching, &pd, &cq, &cq, caps)?;
//!     qp.post_recv(1, memory.sge(0..1024))?;
//!     Ok(qp)
//! }
//! # let _ = serve;
//! ```
//!
//! # Guarantees
//!
//! - No call of [`Device`](cmid_proto::Device) blocks on a peer, on the application or on a daemon, but for the two on
//!   iWARP that [`Call`](cmid_proto::Call) names. (The kernel itself may take about 70 seconds to destroy an id after
//!   requests that the core refuses to make.)
//! - It makes every call that the core requests, and returns the kernel's result. It refuses only calls that would
//!   make the libraries follow a null or a dangling pointer: `EINVAL` for a route, a connection or an answer on an id
//!   that has no device, `EBUSY` for closing a channel that has ids, `ENXIO` for leaving a multicast group once the
//!   device is gone.
//! - It never passes a NULL channel to librdmacm: the core implements synchronous mode.
//! - It never panics on input from a device, a peer or a newer library: unknown event codes and statuses are values.
//! - It never hands out a reference into memory that a device may write to, and never frees such memory. Memory that
//!   is not known to be withdrawn from the device is kept, or leaked.
//! - It takes no lock of its own to post, and makes no atomic read-modify-write. The exception is the first post to
//!   each queue of a QP, which allocates the queue's ring (16 bytes per work request). Polling takes no lock unless
//!   such queues were added or removed since the last poll. One thread at a time posts to a QP; one polls a CQ.
//! - It reads asynchronous events (ibv_get_async_event(3)) only through [`DataPath::async_events`], and acknowledges
//!   each at once.
//!
//! # ibacm
//!
//! On InfiniBand and RoCE, librdmacm queries ibacm(8) for a path in rdma_resolve_route(3). It waits for the answer
//! without a time limit, under a process-wide lock. So [`Verbs::open_with`] refuses [`Backend::Librdmacm`] where ibacm
//! runs ([`OpenError::WaitsForIbacm`]). The kernel backend, which [`Verbs::open`] selects, does not ask ibacm.
//!
//! When the process opens its first [`Verbs`] over librdmacm, the crate looks for `ibacm.port` and `ibacm.sock` in
//! `/run` and `/var/run`, as librdmacm does. (An rdma-core that was built with another run directory is not detected.)
//! If neither file exists, it makes librdmacm try to connect. librdmacm tries that once, so it does not use an ibacm
//! that starts later: then, as without ibacm, the kernel queries the path itself.
//!
//! # Device removal during a leave
//!
//! With [`Backend::Librdmacm`]: `rdma_leave_multicast` frees librdmacm's record of a membership even if the kernel
//! refuses to leave because the device is gone. An unread event would then refer to freed memory. The crate therefore
//! first queries the kernel for the device. If the device is removed between the query and the call, the crate destroys
//! the id at once, with its unread events. Leave then returns `ENXIO`, as does every later call except Destroy, and the
//! next read of the channel returns DEVICE_REMOVAL. (That does not make the descriptor readable. The kernel's own
//! DEVICE_REMOVAL, which the destruction removes, has done so before.)
//!
//! # Backends
//!
//! [`Verbs::open`] manages connections on the kernel's own interface, `/dev/infiniband/rdma_cm` ([`Backend::Kernel`]).
//! [`Verbs::open_with`] can choose librdmacm instead ([`Backend::Librdmacm`]). The data path is the same. Use the
//! kernel backend: its calls never wait, it does not contact ibacm, and a connection needs fewer instructions and no
//! allocations of librdmacm (docs/generated/performance.md). Use librdmacm if other code needs the `rdma_cm_id` of an id
//! ([`raw`], [`Verbs::raw_id`]), which the kernel backend does not have, or to compare the two.
//!
//! The kernel backend differs from librdmacm in these points:
//!
//! - The RDMA device of an id is opened for its first PD, and closed after the last object on it. ADDR_RESOLVED does
//!   not open it.
//! - The new id of an unread request migrates with its listener. librdmacm loses such a request.
//! - Leaving a multicast group after DEVICE_REMOVAL returns `ENXIO`. No event is lost.
//! - [`devices`] still uses librdmacm.
//!
//! Neither backend was tested on RDMA hardware. [`KernelCm`] is the kernel backend without [`Qp`]s. With
//! `default-features = false` the crate contains only [`KernelCm`], which uses none of rdma-core's libraries.
//!
//! # Bindings
//!
//! [`Verbs::open`] loads `libibverbs.so.1`, and [`Backend::Librdmacm`] and [`devices`] also
//! `librdmacm.so.1`, once in the life of the process, as dlopen(3) finds them. A build needs nothing of rdma-core. On a machine
//! without a library the program starts, and [`OpenError::NoLibrary`] names the library:
//!
//! ```no_run
//! # use cmid_verbs::{OpenError, Verbs};
//! # fn over_rdma(_: Verbs) {}
//! # fn over_tcp() {}
//! match Verbs::open() {
//!     Ok(device) => over_rdma(device),
//!     Err(reason) => {
//!         eprintln!("no RDMA: {reason}");
//!         over_tcp();
//!     }
//! }
//! ```
//!
//! A function that the loaded version lacks fails with `EOPNOTSUPP`: memory is registered since rdma-core 28, and enhanced
//! connection establishment needs version 31, multicast over librdmacm version 16. All other functions are older.
//!
//! With the feature `rdma-sys` the program is linked with both libraries, by the bindings that the crate `rdma-sys` generates
//! in the build. That needs rdma-core's headers and libclang 15 or older. Posts and polls are the same code with both:
//! they call the provider's functions, whose addresses are in the context or the QP, as the inline functions of C do.
//!
//! # Unsafe code
//!
//! This is the only product crate with unsafe code. Each block states why it is sound; [`Mr`] holds the argument for
//! memory. All of them rely on these invariants: one [`Verbs`] is the only owner of its ids and channels; an id holds
//! the QP that it points at; ids are destroyed before their channel, QPs before CQs and PDs, address handles before
//! PDs, and all of them before the device's context.

#![expect(unsafe_code, reason = "it calls C")]
#[cfg(all(test, feature = "scripted-kernel"))]
extern crate self as cmid_verbs;

#[cfg(feature = "rdma-core")]
mod accounting;
#[cfg(feature = "rdma-core")]
#[cfg_attr(feature = "rdma-sys", path = "linked.rs")]
mod bindings;
mod contents;
#[cfg(feature = "rdma-core")]
mod data;
#[cfg(feature = "rdma-core")]
mod descriptors;
#[cfg_attr(not(feature = "rdma-core"), allow(dead_code, reason = "results of the libraries"))]
mod errno;
#[cfg(feature = "rdma-core")]
mod ffi;
#[cfg(feature = "rdma-core")]
mod inventory;
#[cfg_attr(not(feature = "rdma-core"), allow(dead_code, unused_imports, unused_variables, reason = "what QPs need"))]
mod kernel;
#[cfg(feature = "rdma-core")]
mod librdmacm;
#[cfg_attr(not(feature = "rdma-core"), allow(dead_code, reason = "numbers of the libraries"))]
mod macros;
#[cfg_attr(not(feature = "rdma-core"), allow(dead_code, reason = "what the data path needs"))]
mod process;
#[cfg(feature = "rdma-core")]
pub mod raw;
mod scope;
mod sign;
#[cfg(feature = "rdma-core")]
mod sockaddr;
mod tables;
#[cfg(feature = "rdma-core")]
mod verbs;

pub use cmid_proto as proto;
#[cfg(feature = "rdma-core")]
pub use cmid_proto::datapath::{
    self, AsyncEvent, AsyncEventKind, AsyncEventQueue, AsyncSource, Caps, Completion, CompletionChannel,
    CompletionQueue, CreateError, DataPath, GRH_LEN, MemoryRegion, MemoryWindow, PostError, ProtectionDomain, QpState,
    QueuePair, RdmaDevice, Remote, SendFlags, SendOp, SendWr, Sge, SharedReceiveQueue, SrqCaps, To, WcFlags, WcOpcode,
    WcStatus,
};
pub use cmid_proto::memory::{
    self, Access, Changes, Fallback, MrState, PdState, Policy, Provider, Returned, Valid, Way,
};
#[cfg(feature = "rdma-core")]
pub use data::{
    Ah, AsyncEvents, Buffer, Change, CompChannel, Cq, Mr, Mw, Nic, Pd, Piece, PostCalls, Qp, Reregistered,
    SharedBuffer, Srq,
};

/// A block of a pool of this crate.
#[cfg(feature = "rdma-core")]
pub type Block = cmid_proto::datapath::Block<Piece>;
/// A pool of this crate.
#[cfg(feature = "rdma-core")]
pub type Pool = cmid_proto::datapath::Pool<Piece>;
#[cfg(feature = "rdma-core")]
pub use inventory::devices;
#[cfg(feature = "scripted-kernel")]
pub use kernel::with_kernel;
pub use kernel::{KernelCm, KernelHandle, OpenError};
#[cfg(feature = "rdma-core")]
pub use verbs::{Backend, Handle, UnknownBackend, Verbs};

// Whether a type is `Send` and `Sync` is part of the interface.
static_assertions::assert_impl_all!(KernelCm: Send);
static_assertions::assert_impl_all!(KernelHandle: Send);

#[cfg(feature = "rdma-core")]
mod is_send {
    use super::{Ah, Buffer, Cq, Handle, Mr, Mw, Nic, Pd, Qp, Verbs};
    use static_assertions::assert_impl_all;

    assert_impl_all!(Verbs: Send);
    assert_impl_all!(Handle: Send);
    assert_impl_all!(Pd: Send, Sync);
    assert_impl_all!(Ah: Send, Sync);
    assert_impl_all!(Nic: Send, Sync);
    assert_impl_all!(Buffer: Send, Sync);
    assert_impl_all!(Mr: Send, Sync);
    assert_impl_all!(Mw: Send, Sync);
    assert_impl_all!(Cq: Send, Sync);
    assert_impl_all!(Qp: Send, Sync);
}

/// The examples of README.md compile and run.
#[cfg(all(doctest, feature = "rdma-core"))]
#[doc = include_str!("../README.md")]
struct Readme;
