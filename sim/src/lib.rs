//! A simulated RDMA fabric, to test programs that use RDMA connections without an RDMA device.
//!
//! ```text
//!  the program under test: a driver of cmid, Drive ( Core )        the test
//!           |  Call                  ^  RawEvent                       | links, loss, removals, time
//!           v                        |                                 v
//!     SimDevice of a Host  <--->  the kernel's and librdmacm's parts  <--->  Fabric  <--->  other Hosts
//! ```
//!
//! A [`Fabric`] has hosts, a [`Host`] creates devices, and a [`SimDevice`] is a [`Device`](cmid_proto::Device). It
//! behaves as librdmacm 44 on Linux 6.12 over RoCE (rxe) does. The same call in the same state returns the same errno.
//! Events have the same order, status, parameters, padded private data and timing. Defects are simulated too: a failing
//! listen reduces the backlog, a second accept ends the connection, and a client of a server that does not answer waits
//! for a quarter of an hour.
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
//! // Time does not advance by itself, so there is no event yet.
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
//! # Worlds
//!
//! [`check`] runs whole [`Program`]s on the hosts of a [`World`], in virtual time, for each of many seeds. The test crashes
//! hosts, takes their power, sets a [`Rule`] for messages and data, or lets [`World::chaos`] plan faults. A [`Failure`] is
//! told with the seed, the faults that it needs, a trace and a chart.
//!
//! ```
//! use std::time::Duration;
//!
//! use cmid_proto::handshake::{Dial, DialTo, Incoming};
//! use cmid_proto::{Acks, ConnParam, Error, PortSpace, Time};
//! use cmid_sim::{Config, Fault, Node, Turn, World, check_with, find_with, turn};
//!
//! /// Without a QP.
//! fn param() -> ConnParam {
//!     ConnParam { qp_num: 77, ..ConnParam::default() }
//! }
//!
//! /// Accepts everybody.
//! fn server(node: &Node) -> impl FnMut(Time) -> Turn + use<> {
//!     let mut drive = node.drive();
//!     let channel = drive.open_channel(Acks::OnDelivery).expect("a channel");
//!     let id = drive.create_id(Some(channel), PortSpace::Tcp).expect("an id");
//!     drive.bind(id, node.addr(7471)).and_then(|()| drive.listen(id, 16)).expect("a listener");
//!     let mut serves = Vec::new();
//!     move |now| {
//!         turn(&mut drive, now);
//!         while let Some(event) = drive.next_event(channel) {
//!             if let Ok(incoming) = Incoming::new(&mut drive, event) {
//!                 serves.extend(incoming.accept(&mut drive, param(), &[], Time::NEVER, |_, _| Ok::<_, Error>(())));
//!             }
//!         }
//!         drive.next_action().into()
//!     }
//! }
//!
//! /// Connects once, and tries again after this time.
//! fn client(node: &Node, patience: Duration) -> impl FnMut(Time) -> Turn + use<> {
//!     let mut drive = node.drive();
//!     let channel = drive.open_channel(Acks::OnDelivery).expect("a channel");
//!     let to = DialTo { param: param(), ..DialTo::new(node.addr_of("server", 7471)) };
//!     let mut dial: Option<Dial<()>> = None;
//!     move |now| {
//!         turn(&mut drive, now);
//!         while let Some(event) = drive.next_event(channel) {
//!             let Some(under_way) = &mut dial else { continue };
//!             match under_way.handle(&mut drive, event, |_, _| Ok::<_, Error>(())) {
//!                 Ok(Some(_connected)) => return Turn::Done,
//!                 Ok(None) => {}
//!                 Err(_) => dial = None,
//!             }
//!         }
//!         if dial.is_none() {
//!             dial = Dial::start(&mut drive, Some(channel), &to, now.after(patience)).ok();
//!         }
//!         drive.next_action().into()
//!     }
//! }
//!
//! fn connects(world: &mut World, patience: Duration) {
//!     world.host("server", server);
//!     world.client("client", move |node| client(node, patience));
//!     world.chaos(3, Duration::from_millis(50), &[Fault::Loss, Fault::Pause]);
//!     world.run(Duration::from_secs(4));
//! }
//!
//! let slow = Config { latency: Duration::from_millis(5), ..Config::default() };
//! check_with(&slow, 0..50, |world| connects(world, Duration::from_secs(1)));
//! // Without a time limit the kernel waits for 4.6 s before it sends a lost message again.
//! let failure = find_with(&slow, 0..1000, |world| connects(world, Duration::MAX)).expect("a failure");
//! assert_eq!(failure.message, "not done within 4s: client");
//! ```
//!
//! # What is modelled
//!
//! An id has the four state variables of the real stack, because much of what an application observes results from
//! differences between them: the IB CM's protocol state, the RDMA CM's state, the kernel's user context, and
//! librdmacm's record. Messages (REQ, REP, RTU, REJ, MRA, DREQ, DREP; SIDR REQ and SIDR REP for datagram ids) travel
//! between hosts and within one. They can be retransmitted, lost, or time out. Reading an event has effects: the
//! device of an id becomes known, a REP is answered by RTU if the id has a QP, a QP is attached to the joined
//! multicast group, and some events are swallowed.
//!
//! The data path ([`Pd`], [`Mr`], [`Cq`], [`Qp`]) sends, reads and writes, with the fabric's latency, and
//! without loss unless a [`Rule`] loses packets: the transport repeats those. The calls and events of an id change its QP's state as in librdmacm. A datagram ([`Ah`], [`To`],
//! [`SendWr::send_to`]) arrives after [`GRH_LEN`] bytes of header, or is lost.
//!
//! Memory ([`Pd`], [`Mr`], [`Mw`]) uses the state machines of [`memory`]. The simulated device counts users
//! independently, and tests can compare ([`Pd::users_at_device`]). It checks keys, domains and rights when it executes
//! a work request. It answers a call as libibverbs, the kernel and a driver do, with the checks of each in the original
//! order.
//!
//! ```
//! use cmid_proto::{Call, ChannelKey, Device, IdKey, PortSpace};
//! use cmid_sim::{Access, Change, Config, Fabric, Fallback, Policy, Way, datapath::prelude::*};
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
//! let mut mr = pd.register(vec![1; 64], Access::LOCAL_WRITE)?;
//! assert_eq!(pd.users(), 1);
//!
//! // This device cannot re-register, as soft-RoCE cannot: the MR is registered anew, and the old buffer comes back.
//! let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
//! let ended = mr.reregister(Change::default().to_buffer([2; 64]), policy);
//! assert_eq!((ended.result, ended.buffer), (Ok(Way::Anew), Some([1; 64].into())));
//! assert_eq!(mr.deregister()?.buffer, [2; 64]);
//! # Ok(())
//! # }
//! ```
//!
//! # Configuration
//!
//! [`Fabric::rule`] loses, delays and doubles messages, cuts hosts off, and makes links narrow. [`Config`] has the seed, the latency, the loss, the [`Clock`], the [`Flavour`] of the kernel, the capabilities of
//! hosts and devices, and a defect of all kernels that can be switched off. [`Host`] injects faults and changes:
//! its link goes down ([`set_link`](Host::set_link)), its link address changes
//! ([`change_link_addr`](Host::change_link_addr), [`fail_over`](Host::fail_over)), its device is removed and another
//! is added ([`remove_device`](Host::remove_device), [`add_device`](Host::add_device)), a multicast group fails
//! ([`fail_next_join`](Host::fail_next_join), [`lose_group`](Host::lose_group)), a call fails ([`fail_call`](Host::fail_call)), a resource is exhausted
//! ([`fail_next_creation`](Host::fail_next_creation)), a memory call fails
//! ([`fail_next_deregistration`](Host::fail_next_deregistration),
//! [`fail_next_reregistration`](Host::fail_next_reregistration), at each of its stages), a provider refuses a post that is
//! in its queue ([`fail_next_doorbell`](Host::fail_next_doorbell)). Completions of an iWARP host
//! ([`Fabric::host_with`]) have the order of soft-iWARP: a write does not wait for the reads before it. Dropping a device simulates
//! the exit of its process. With a virtual clock a run depends only on the configuration and the calls.
//!
//! # What differs from the kernel
//!
//! - A destroy never waits. The real one waits for about 70 seconds after a reject or a second accept that left a
//!   message of the id outstanding. Here [`Counters::stalls`] counts the case, and the message is not sent again.
//! - An event that a migration moved does not make the target's descriptor readable until the channel is read or
//!   another event arrives. In the kernel it does not wake a waiting thread either, but a new poll returns readable.
//!   The simulator is stricter, to find programs that do not read a channel until it is empty.
//! - Each call and each message is processed at once and atomically. Races between threads inside the kernel, and the
//!   stale pointers of its migration, do not occur.
//! - A link has no bandwidth unless a [`Rule`] gives it one.
//! - Time-outs are exact; the kernel's are up to 5 % longer.
//! - Every /24 or /64 is one network on one wire. A host has one device for all of its networks, unless it is created with
//!   several ([`Fabric::host_with_devices`]). If two hosts have the same address, the first one answers.
//! - `rdma_leave_multicast` selects a membership by its address, the latest first; here the key selects it.
//! - A call refuses a datagram of more than the MTU; rxe completes it with success and sends nothing
//!   (`rxe_requester`). A datagram that is longer than its receive is dropped, and the receive stays posted.
//! - The type of service appears only in the path that a lookup of a datagram service returns, and has no effect. The
//!   GID table of a port is the list of its host's addresses.
//! - Only reliable connected and datagram QPs exist.
//! - A send that waits for a receive is executed when the receive is posted; rxe sends it again 0.66 s after the last
//!   attempt. On iWARP it ends the connection.
//! - A call refuses a work request if its range is outside of the region, if the region belongs to another domain, or
//!   if the region lacks a required right. Real hardware reports these in a completion, or does not check them.
//! - Destroying a QP removes its completions, as with libmlx5; those of rxe stay in the CQ
//!   ([`Config::completions_outlive_qp`]). Received data is in memory at once; mlx5 and hns copy some of it when the
//!   completion is polled ([`Config::copy_at_poll`]).
//! - A completion queue exists until its handle is dropped, even if QPs use it.
//! - The bytes of a send or write are copied when the device begins with it, which is in the post unless it must wait;
//!   hardware may read them at any time until it completes.
//! - Memory has simulated addresses, and every buffer has its own pages. The pinned memory of all programs of a host
//!   counts against one limit ([`Config::lock_limit`]).
//! - Access rights are those of rxe without on-demand paging, which no device supports here.
//! - Ephemeral ports are never shared, so a host's 28,233rd id with one gets `EADDRNOTAVAIL`; the kernel shares a port
//!   between ids of other addresses or destination ports. Ports below 1024 can be bound.
//! - iWARP keeps the port spaces apart, which TCP does not. Private data of 252 bytes and more is `EINVAL` there.
//! - An interface that a scope names and that has no device, or is not there, is the loopback interface. Over it no
//!   IPv4 address is looked up, as in the kernel.
//! - Memory windows are of type 2, and give access to their part of a region only; those of rxe give access to all of
//!   it ([`Config::windows_without_range`]).
//! - Each region and window has a key of its own; mlx5 gives the keys of those that are gone to later ones
//!   ([`Config::reuses_keys`]).
//! - The write of a peer is in memory when its key is checked, or later ([`Config::copies_late`]).
#![forbid(unsafe_code)]

mod data;
mod fabric;
mod index;
mod kernel;
mod worlds;

pub use cmid_proto as proto;
pub use cmid_proto::datapath::{
    self, AsyncEvent, AsyncEventKind, AsyncEventQueue, AsyncSource, Caps, Completion, CompletionChannel,
    CompletionQueue, CreateError, DataPath, GRH_LEN, MemoryRegion, MemoryWindow, PostError, ProtectionDomain, QpState,
    QueuePair, RdmaDevice, Remote, SendFlags, SendOp, SendWr, Sge, SharedReceiveQueue, SrqCaps, To, WcFlags, WcOpcode,
    WcStatus,
};
pub use cmid_proto::memory::{
    self, Access, Changes, Fallback, MrState, PdState, Policy, Provider, Returned, Valid, Way,
};
pub use data::ah::Ah;
pub use data::async_events::AsyncEvents;
pub use data::blocks::Piece;
pub use data::buffer::{Buffer, SharedBuffer};
pub use data::bytes::{Slice, SliceMut};
pub use data::comp_channel::CompChannel;
pub use data::cq::Cq;
pub use data::device::Nic;
pub use data::fault::{Left, ReregFault, Resource};
pub use data::mr::{Change, Mr, Reregistered};
pub use data::mw::Mw;
pub use data::pd::Pd;
pub use data::qp::Qp;
pub use data::srq::Srq;
pub use fabric::Fabric;
pub use fabric::config::{Clock, Config, Flavour, Rereg};
pub use fabric::counters::Counters;
pub use fabric::device::{SimDevice, SimHandle};
pub use fabric::host::Host;
pub use fabric::latency::Latency;
pub use fabric::rules::{Guard, Kind, Rule, RuleKind};
pub use worlds::{
    Coverage, Covering, Disk, Failure, Fault, Node, Program, Report, Task, Turn, World, check, check_with, find,
    find_with, turn,
};
