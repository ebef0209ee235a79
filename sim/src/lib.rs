//! A simulated RDMA fabric, for programs that drive RDMA connections and have no RDMA device, or do not trust luck.
//!
//! A [`Fabric`] has hosts, a [`Host`] gives devices, and a [`SimDevice`] is a [`Device`](cmid_proto::Device) that
//! behaves as librdmacm 44 on Linux 6.12 over RoCE (rxe) does: the same errno from the same call in the same state, the
//! same events with the same status, parameters and padded private data, in the same order, after the same time. What
//! looks odd here is odd there: a failing listen shrinks the backlog, a second accept kills the connection, a silent
//! server keeps its client waiting for a quarter of an hour.
//!
//! ```
//! use cmid_proto::{Call, ChannelKey, CmEvent, Device, IdKey, PortSpace};
//! use cmid_sim::{Config, Fabric};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::new(Config::default());
//! let mut device = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]).device();
//! let channel = ChannelKey::from_parts(0, 0, 1).ok_or("no key")?;
//! let (id, spare) = (IdKey::from_parts(0, 0, 1).ok_or("no key")?, IdKey::from_parts(0, 1, 1).ok_or("no key")?);
//! device.call(&Call::OpenChannel { channel }, &[])?;
//! device.call(&Call::CreateId { id, channel, port_space: PortSpace::Tcp }, &[])?;
//! device.call(&Call::ResolveAddr { id, src: None, dst: "10.0.0.2:7".parse()?, timeout_ms: 2000 }, &[])?;
//!
//! // Nothing happens before its time.
//! assert_eq!(device.fetch(channel, spare)?, None);
//! while let Some(due) = fabric.next_due() {
//!     fabric.advance_to(due);
//! }
//! let event = device.fetch(channel, spare)?.ok_or("no event")?;
//! assert_eq!((event.id, event.kind, event.status), (id, CmEvent::AddrResolved, 0));
//! # Ok(())
//! # }
//! ```
//!
//! # What is modelled
//!
//! An id has the four state variables of the real stack, because much of what an application sees comes from their
//! disagreement: the IB CM's protocol state, the RDMA CM's state, the kernel's user context, and librdmacm's record.
//! Messages (REQ, REP, RTU, REJ, MRA, DREQ, DREP; SIDR REQ and SIDR REP for datagram ids) travel between hosts and
//! within one, are sent again, are lost, time out. Reading an event is an action: there the device of an id becomes
//! known, a REP is answered by RTU if the id has a QP, a QP hears the multicast group that was joined, and events are
//! swallowed.
//!
//! The data path ([`Pd`], [`Mr`], [`Cq`], [`Qp`]) sends, reads and writes, with the fabric's latency and without loss;
//! a QP's states follow its id's calls and events as librdmacm moves them. A datagram ([`Ah`], [`To`],
//! [`Qp::post_send_to`]) comes after [`GRH_LEN`] bytes of header, or does not come.
//!
//! Memory ([`Pd`], [`Mr`], [`Mw`]) runs on the machines of [`memory`]. The device behind them keeps books of its own,
//! which tests can compare ([`Pd::users_at_device`]): it checks keys, domains and rights when a work request is carried
//! out, and answers a call as libibverbs, the kernel and a driver together do, each in its own order.
//!
//! ```
//! use cmid_proto::{Call, ChannelKey, Device, IdKey, PortSpace};
//! use cmid_sim::{Access, Change, Config, Fabric, Fallback, Policy, Way};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::new(Config::default());
//! let mut device = fabric.host(&["10.0.0.1".parse()?]).device();
//! # let channel = ChannelKey::from_parts(0, 0, 1).ok_or("no key")?;
//! # let id = IdKey::from_parts(0, 0, 1).ok_or("no key")?;
//! # device.call(&Call::OpenChannel { channel }, &[])?;
//! # device.call(&Call::CreateId { id, channel, port_space: PortSpace::Tcp }, &[])?;
//! device.call(&Call::Bind { id, addr: "10.0.0.1:0".parse()? }, &[])?;
//! let pd = device.alloc_pd(id)?;
//! let mut mr = pd.register(vec![1; 64], Access::LOCAL_WRITE).map_err(|(_, error)| error)?;
//! assert_eq!(pd.users(), 1);
//!
//! // This device cannot re-register, as soft-RoCE cannot: the MR is registered anew, and the old buffer comes back.
//! let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
//! let ended = mr.reregister(Change::default().to_buffer([2; 64]), policy);
//! assert_eq!((ended.result, ended.buffer), (Ok(Way::Anew), Some(vec![1; 64])));
//! assert_eq!(mr.deregister().map_err(|(_, error)| error)?.buffer, [2; 64]);
//! # Ok(())
//! # }
//! ```
//!
//! # The knobs
//!
//! They are [`Config`]'s: the seed, the latency, the loss, the [`Clock`], the [`Flavour`] of the kernel, what hosts and
//! devices can, and two defects of all kernels that can be switched off. What happens to a host is up to [`Host`]: its
//! link goes down ([`set_link`](Host::set_link)), its link address changes
//! ([`change_link_addr`](Host::change_link_addr), [`fail_over`](Host::fail_over)), its device goes and another comes
//! ([`remove_device`](Host::remove_device), [`add_device`](Host::add_device)), a multicast group fails
//! ([`fail_next_join`](Host::fail_next_join), [`lose_group`](Host::lose_group)), a call about memory fails
//! ([`fail_next_registration`](Host::fail_next_registration),
//! [`fail_next_deregistration`](Host::fail_next_deregistration),
//! [`fail_next_reregistration`](Host::fail_next_reregistration), at each of its stages). A process ends by dropping its
//! device. With a virtual clock a run depends on nothing but the configuration and the calls.
//!
//! # What differs from the kernel
//!
//! - A destroy never waits. Where the real one would for about 70 seconds (after a reject or a second accept that left
//!   a message of the id's own under way), [`Counters::stalls`] counts, and that message is not sent again.
//! - An event that a migration moved does not make the target's descriptor readable until somebody reads the channel or
//!   another event comes. In the kernel it does not wake who is waiting either, but a fresh poll would see it: the
//!   simulator is stricter with those who forget to look.
//! - Each call and each message is handled at once and as a whole; races between threads inside the kernel, and with
//!   them the stale pointers of its migration, do not exist.
//! - Time-outs are exact; the kernel's are up to 5 % longer.
//! - Every /24 or /64 is one network on one wire, and a host has one device for all of its networks. If two hosts have
//!   the same address, the first one answers.
//! - A device that goes takes its connections along without a word to the peers, where the kernel may still get a DREQ
//!   out.
//! - `rdma_leave_multicast` finds a membership by its address, the latest first; here its key decides.
//! - A datagram of more than the MTU is refused by the call; rxe completes it with success and sends nothing
//!   (`rxe_requester`). One that is longer than its receive is dropped, and the receive stays.
//! - The type of service is in the address of who was looked up, and makes no difference. The GID table of a port is the
//!   list of its host's addresses.
//! - Reliable connected and datagram QPs only, no shared receive queues, no immediate data.
//! - A send waits for its receive for ever, whatever `rnr_retry_count` says.
//! - Work requests whose range is outside of their region are refused by the call, and those whose region is of another domain or
//!   has not the access that they need; real hardware would report them in a completion, or does not look.
//! - Completions go with their QP when it is destroyed, as with libmlx5; rxe's stay in the CQ
//!   ([`Config::completions_outlive_qp`]). What has arrived is in memory at once; mlx5 and hns copy some of it there when the
//!   completion is polled ([`Config::copy_at_poll`]).
//! - A completion queue lives until its handle is dropped, whatever uses it.
//! - The bytes of a send or write are taken when it is posted; hardware may take them at any time until it completes.
//! - Memory has made-up addresses, and every buffer has pages of its own. What all programs of a host have pinned counts
//!   against one limit ([`Config::lock_limit`]).
//! - Rights are those of rxe, but for on-demand paging, which no device here can. Atomic operations cannot be posted.
//! - Memory windows are of type 2, and show their part of a region only; rxe's show all of it (`check_rkey`).
#![forbid(unsafe_code)]

mod data;
mod fabric;
mod index;
mod kernel;

pub use cmid_proto::memory::{
    self, Access, Changes, Failure, Fallback, MrState, PdState, Policy, Provider, RefuseReason, Returned, Valid, Way,
};
pub use data::ah::{Ah, To};
pub use data::bytes::{Slice, SliceMut, View};
pub use data::completion::{Completion, WcStatus};
pub use data::cq::Cq;
pub use data::datagram::GRH_LEN;
pub use data::fault::{Left, ReregFault};
pub use data::mr::{Buffer, Change, Mr, Reregistered};
pub use data::mw::Mw;
pub use data::pd::Pd;
pub use data::qp::{Qp, Remote};
pub use data::queues::{Caps, QpState};
pub use fabric::Fabric;
pub use fabric::config::{Clock, Config, Flavour, Rereg};
pub use fabric::counters::Counters;
pub use fabric::device::{SimDevice, SimHandle};
pub use fabric::host::Host;
