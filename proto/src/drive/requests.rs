//! One method per request. It submits the request, makes its call, and returns the result of the call.

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{AdoptError, Drive, Observer, Poller, ReleasedId, Step};
use crate::device::Device;
use crate::errno::Errno;
use crate::error::{Error, Fault, Refused};
use crate::error_with::ErrorWith;
use crate::event::{ConnParam, Ece};
use crate::key::{ChannelKey, GroupKey, IdKey, Target};
use crate::machine::Progress;
use crate::refuse_reason::RefuseReason;
use crate::request::{Acks, CmOption, PortSpace, RejectReason, Request, Service};
use crate::request_kind::RequestKind;
use crate::time::Time;
use crate::transport::Transport;

/// The number of the next released id in this process.
static RELEASED: AtomicU64 = AtomicU64::new(1);

impl<D: Device, P: Poller<D>, O: Observer> Drive<D, P, O> {
    /// Opens an event channel.
    ///
    /// # Errors
    /// Refused at the limit; failed with the device's errno, such as `ENODEV` without any RDMA device, or `EMFILE`.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn open_channel(&mut self, acks: Acks) -> Result<ChannelKey, Error> {
        self.make(|core| core.open_channel(acks), |result| Step::OpenChannel { acks, result })
    }

    /// Closes an event channel that no id uses.
    ///
    /// # Errors
    /// Refused while the channel is in use.
    #[doc(alias = "rdma_destroy_event_channel")]
    pub fn close_channel(&mut self, channel: ChannelKey) -> Result<(), Error> {
        self.make(|core| Ok(((), core.close_channel(channel)?)), |result| Step::CloseChannel { channel, result })
    }

    /// Creates an id on a channel, or in synchronous mode (`None`).
    ///
    /// # Errors
    /// Refused at the limits and for a channel that does not exist; failed with the device's errno.
    #[doc(alias = "rdma_create_id")]
    pub fn create_id(&mut self, channel: Option<ChannelKey>, port_space: PortSpace) -> Result<IdKey, Error> {
        let step = |result| Step::CreateId { channel, port_space, result };
        self.make(|core| core.create_id(channel, port_space), step)
    }

    /// Binds an id to a local address (rdma_bind_addr(3)).
    ///
    /// # Errors
    /// Refused in a wrong state; failed with the device's errno, such as `EADDRINUSE`, `EADDRNOTAVAIL` or `ENODEV`.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(&mut self, id: IdKey, addr: SocketAddr) -> Result<(), Error> {
        self.request(id, Request::Bind { addr }, Time::NEVER).map(drop)
    }

    /// Starts to resolve an address; ADDR_RESOLVED or ADDR_ERROR follows (rdma_resolve_addr(3)). The kernel's timeout
    /// is seven eighths of the time until the deadline. After the kernel's ADDR_ERROR the request can be repeated;
    /// after the deadline it cannot.
    ///
    /// A loopback or wildcard address as `dst` leads nowhere on RoCE and iWARP: the address is resolved, but there is no
    /// route to it, or there is no device. The [`Failure`](crate::Failure) then says so ([`FailureCause`](crate::FailureCause)).
    ///
    /// # Errors
    /// Refused in a wrong state, and with a source on an id that is bound already, or may be by a bind, a resolve or a
    /// listen that has failed ([`RefuseReason::IsBound`]); failed with the device's errno, such as `ENETUNREACH`,
    /// `EADDRNOTAVAIL` or `ENODEV`.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &mut self,
        id: IdKey,
        src: Option<SocketAddr>,
        dst: SocketAddr,
        deadline: Time,
    ) -> Result<(), Error> {
        self.request(id, Request::ResolveAddr { src, dst }, deadline).map(drop)
    }

    /// Starts to resolve a route; ROUTE_RESOLVED or ROUTE_ERROR follows (rdma_resolve_route(3)).
    ///
    /// # Errors
    /// Refused in a wrong state; failed with the device's errno, such as `ENODEV`.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&mut self, id: IdKey, deadline: Time) -> Result<(), Error> {
        self.request(id, Request::ResolveRoute, deadline).map(drop)
    }

    /// Listens for connection requests; CONNECT_REQUEST follows for each (rdma_listen(3)).
    ///
    /// # Errors
    /// Refused in a wrong state, and if the id is bound to a loopback address, because the kernel would accept requests
    /// from all networks ([`RefuseReason::OnLoopback`]). An id on a channel of the application gets its own channel:
    /// this is refused at the limit on channels, and while events of the id are not acked. Failed with the device's errno: of the listen, such
    /// as `EADDRINUSE`, or of opening the id's own channel or migrating the id to it, such as `EMFILE`.
    #[doc(alias = "rdma_listen")]
    pub fn listen(&mut self, id: IdKey, backlog: i32) -> Result<(), Error> {
        if self.core.id_info(id).map(|it| it.port_space).is_some_and(|space| space.service() == Service::Datagram) {
            self.query_transport(id);
        }
        self.request(id, Request::Listen { backlog }, Time::NEVER).map(drop)
    }

    /// Sends a connection request (rdma_connect(3)). One of these events follows: ESTABLISHED (with a QP on the id),
    /// CONNECT_RESPONSE (without one), REJECTED, UNREACHABLE or CONNECT_ERROR.
    ///
    /// # Errors
    /// Refused in a wrong state, with more than 56 bytes of private data (180 for datagrams), or with a value that does not
    /// fit ([`RefuseReason::TooLarge`]); failed with the device's errno.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&mut self, id: IdKey, param: ConnParam, private_data: &[u8], deadline: Time) -> Result<(), Error> {
        self.query_transport_of(id, param);
        self.request(id, Request::Connect { param, private_data }, deadline).map(drop)
    }

    /// Accepts a connection request; ESTABLISHED follows, except for datagrams (rdma_accept(3)). An id on its
    /// listener's channel is first migrated off it.
    ///
    /// # Errors
    /// Refused in a wrong state, with more than 196 bytes of private data (136 for datagrams), or with a value that
    /// does not fit ([`RefuseReason::TooLarge`]); failed with `EINVAL` if the peer no longer waits. The accept can be
    /// repeated if this migration fails; otherwise destroy the id, which rejects a peer that still waits.
    #[doc(alias = "rdma_accept")]
    pub fn accept(&mut self, id: IdKey, param: ConnParam, private_data: &[u8], deadline: Time) -> Result<(), Error> {
        self.query_transport_of(id, param);
        self.request(id, Request::Accept { param, private_data }, deadline).map(drop)
    }

    /// Rejects a connection request, or the reply to one (rdma_reject(3)). Destroy the id afterwards.
    ///
    /// # Errors
    /// Refused in a wrong state or with more than 148 bytes of private data (136 for datagrams); failed with `EINVAL`
    /// if the peer has gone. Destroy the id then, too, which rejects a peer that still waits.
    #[doc(alias = "rdma_reject")]
    pub fn reject(&mut self, id: IdKey, private_data: &[u8]) -> Result<(), Error> {
        self.request(id, Request::Reject { reason: RejectReason::Consumer, private_data }, Time::NEVER).map(drop)
    }

    /// As [`reject`](Drive::reject), because of the peer's enhanced connection establishment (`rdma_reject_ece`).
    ///
    /// # Errors
    /// As for [`reject`](Drive::reject).
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_ece(&mut self, id: IdKey, private_data: &[u8]) -> Result<(), Error> {
        self.request(id, Request::Reject { reason: RejectReason::Ece, private_data }, Time::NEVER).map(drop)
    }

    /// Confirms a CONNECT_RESPONSE (rdma_establish(3)); for ids without a QP.
    ///
    /// # Errors
    /// Refused in a wrong state; failed with `EINVAL` if the peer no longer waits. Destroy the id then, which rejects a
    /// peer that still waits.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&mut self, id: IdKey) -> Result<(), Error> {
        self.request(id, Request::Establish, Time::NEVER).map(drop)
    }

    /// Ends a connection, or confirms its end by the peer; DISCONNECTED follows unless the peer disconnected first
    /// (rdma_disconnect(3)).
    ///
    /// This also moves a QP of the id to its error state, so its posted work requests complete with `WR_FLUSH_ERR`. The
    /// DISCONNECTED of a peer does not: until this side disconnects, its posted receives do not complete. Wait for events
    /// of the id as well as for completions.
    ///
    /// # Errors
    /// Refused if there is no connection to end; failed with the device's errno.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&mut self, id: IdKey, deadline: Time) -> Result<(), Error> {
        self.request(id, Request::Disconnect, deadline).map(drop)
    }

    /// Ends a connection so that no packet of it can arrive any more: DISCONNECTED, then TIMEWAIT_EXIT and
    /// [`State::Closed`](crate::State::Closed). The memory of the connection may then be reused, whatever the peer
    /// does. At the deadline it ends with [`EventKind::DeadlinePassed`](crate::EventKind::DeadlinePassed) and the same
    /// state, which proves nothing: destroy the QP first.
    ///
    /// If both sides disconnect at the same moment, the kernel reports no TIMEWAIT_EXIT unless one of them
    /// disconnects once more (`cm_dreq_handler`). A teardown does so.
    ///
    /// On iWARP a teardown ends with DISCONNECTED: the TCP connection has ended, and there is no TIMEWAIT_EXIT.
    ///
    /// # Errors
    /// Refused if there is no connection to end, and with [`RefuseReason::IsOver`] if the connection has ended already.
    pub fn teardown(&mut self, id: IdKey, deadline: Time) -> Result<(), Error> {
        self.query_transport(id);
        self.request(id, Request::Teardown, deadline).map(drop)
    }

    /// Reports that a message has come on the QP of an accepted id; ESTABLISHED follows (rdma_notify(3)).
    ///
    /// # Errors
    /// Refused in a wrong state; failed with `EISCONN` if the peer has confirmed meanwhile.
    #[doc(alias = "rdma_notify")]
    pub fn notify_established(&mut self, id: IdKey) -> Result<(), Error> {
        self.request(id, Request::Notify, Time::NEVER).map(drop)
    }

    /// Synchronous mode: waits for the next request of a listener (rdma_get_request(3));
    /// [`Core::sync_event`](crate::Core::sync_event) then returns the request. Until the new id is migrated, its events
    /// come on the listener's channel, which is not read while the core is at the limit on ids. A migration to `None`
    /// makes the new id synchronous, as in librdmacm.
    ///
    /// # Errors
    /// Refused in a wrong state or if the listener is not in synchronous mode.
    #[doc(alias = "rdma_get_request")]
    pub fn get_request(&mut self, listener: IdKey, deadline: Time) -> Result<(), Error> {
        self.request(listener, Request::GetRequest, deadline).map(drop)
    }

    /// Joins a multicast group; MULTICAST_JOIN or MULTICAST_ERROR with the returned key follows
    /// (rdma_join_multicast_ex(3)). With `send_only` the QP is not attached.
    ///
    /// # Errors
    /// Refused in a wrong state, for connected services, on iWARP, without a device, for an address of no group, or if the
    /// id is a member of this address already; failed with the device's errno.
    #[doc(alias("rdma_join_multicast", "rdma_join_multicast_ex"))]
    pub fn join(&mut self, id: IdKey, addr: SocketAddr, send_only: bool, deadline: Time) -> Result<GroupKey, Error> {
        self.query_transport(id);
        self.request(id, Request::Join { addr, send_only }, deadline)?;
        // The membership is new: the id had none of this address.
        self.core.group_at(id, addr).ok_or(Error::Refused(Refused::NoSuchId { id, request: RequestKind::Join }))
    }

    /// Leaves a multicast group (rdma_leave_multicast(3)). [`Progress::WhenAcked`]: events of the group are not
    /// acked, and a `Left` event follows.
    ///
    /// # Errors
    /// Refused if there is no such membership. Failed with the device's errno; the membership is gone nevertheless.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave(&mut self, id: IdKey, group: GroupKey) -> Result<Progress, Error> {
        self.request(id, Request::Leave { group }, Time::NEVER)
    }

    /// Sets an option (rdma_set_option(3)).
    ///
    /// # Errors
    /// Refused in a state or for a service that the option does not apply to, where it would have no effect any more
    /// ([`RefuseReason::AlreadySent`]), and for a value that does not fit ([`RefuseReason::TooLarge`]); failed with the
    /// device's errno.
    #[doc(alias = "rdma_set_option")]
    pub fn set_option(&mut self, id: IdKey, option: CmOption) -> Result<(), Error> {
        if let CmOption::Tos(_) = option {
            self.query_transport(id);
        }
        self.request(id, Request::SetOption { option }, Time::NEVER).map(drop)
    }

    /// Sets the options of enhanced connection establishment that the next connect or accept sends
    /// (rdma_set_local_ece(3)). With a QP on the id, a connect sends the options of the QP instead (`rdma_connect`,
    /// `ibv_query_ece`).
    ///
    /// # Errors
    /// Refused in a wrong state, with a QP on the id, for vendor 0, or for one above 24 bits; failed with the device's errno.
    #[doc(alias = "rdma_set_local_ece")]
    pub fn set_ece(&mut self, id: IdKey, ece: Ece) -> Result<(), Error> {
        self.request(id, Request::SetEce { ece }, Time::NEVER).map(drop)
    }

    /// Returns the transport of an id once it has a device ([`Device::transport`]).
    #[doc(alias = "ibv_transport_type")]
    pub fn transport(&mut self, id: IdKey) -> Option<Transport> {
        self.outside.device.transport(id)
    }

    /// Returns the local address of an id (`rdma_get_local_addr`), with the port that the kernel has selected.
    ///
    /// # Errors
    /// As [`Device::local_addr`].
    #[doc(alias("rdma_get_local_addr", "rdma_get_src_port"))]
    pub fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        self.outside.device.local_addr(id)
    }

    /// Returns the peer's address of an id (`rdma_get_peer_addr`).
    ///
    /// # Errors
    /// As [`Device::peer_addr`].
    #[doc(alias("rdma_get_peer_addr", "rdma_get_dst_port"))]
    pub fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        self.outside.device.peer_addr(id)
    }

    /// Returns the peer's options of enhanced connection establishment (rdma_get_remote_ece(3)).
    ///
    /// # Errors
    /// The errno of the device.
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno> {
        self.outside.device.remote_ece(id)
    }

    /// Migrates an id, with its undelivered events, to another channel, or with `None` into synchronous mode
    /// (rdma_migrate_id(3)). [`Progress::WhenAcked`]: a `Migrated` event follows; until then the id is unchanged.
    ///
    /// # Errors
    /// Refused if the channel does not exist. Failed with the device's errno; nothing has changed. The migration of a
    /// listener does not fail, because it makes no device call.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&mut self, id: IdKey, to: Option<ChannelKey>, deadline: Time) -> Result<Progress, Error> {
        self.request(id, Request::Migrate { to }, deadline)
    }

    /// Destroys an id (rdma_destroy_id(3)). [`Progress::WhenAcked`]: a `Destroyed` event follows.
    ///
    /// # Errors
    /// Refused for an id that is gone or being destroyed; failed with the device's errno.
    #[doc(alias = "rdma_destroy_id")]
    pub fn destroy(&mut self, id: IdKey, deadline: Time) -> Result<Progress, Error> {
        self.request(id, Request::Destroy, deadline)
    }

    /// Destroys an id without the acks that are owed for it, for example if its ack tokens are lost
    /// ([`IdInfo::owed`](crate::info::IdInfo::owed)). It ends a destroy that waits for acks. Later
    /// acks of the id are refused.
    ///
    /// # Errors
    /// Refused for an id that is gone; failed with the device's errno.
    pub fn destroy_now(&mut self, id: IdKey) -> Result<(), Error> {
        self.request(id, Request::DestroyNow, Time::NEVER).map(drop)
    }

    /// Removes an id in synchronous mode from this driver, for another driver to adopt, also on another thread. The
    /// channel of the id is released with it. Ids of requests that are on that
    /// [channel at the device](crate::Core::device_channel) are first migrated to the channels that deliver their events.
    ///
    /// # Errors
    /// Refused if the id is not in synchronous mode, is busy, or shares its channel. For a listener, also the errors of
    /// these migrations. A fault if the device fails; the id is then destroyed.
    pub fn release(&mut self, id: IdKey) -> Result<ReleasedId<D::Handle>, Error> {
        if let Err(Refused::Request { reason: RefuseReason::SharesChannel, .. }) = self.core.would_release(id) {
            self.migrate_off_channel_of(id)?;
        }
        let number = RELEASED.fetch_add(1, Ordering::Relaxed);
        let result = self.core.release(id).map_err(Error::from).and_then(|(released, channel)| {
            self.outside.unregister(channel);
            let handle = self.outside.device.release(id, channel).map_err(|errno| {
                self.outside.discard(id, channel);
                Error::Fault(Fault::Leak { call: "release", target: Target::Id(id), errno })
            })?;
            Ok(ReleasedId { released, handle, number })
        });
        self.record(Step::Release { id, number, result: result.as_ref().map(drop).map_err(|&error| error) });
        result
    }

    /// Migrates the ids of requests off a listener's channel, to the channels that deliver their events.
    fn migrate_off_channel_of(&mut self, listener: IdKey) -> Result<(), Error> {
        let device_channel = self.core.device_channel(listener);
        let away: Vec<_> = device_channel
            .into_iter()
            .flat_map(|device_channel| self.core.ids_awaiting_migrate(device_channel))
            .collect();
        for (id, channel) in away {
            self.request(id, Request::Migrate { to: Some(channel) }, Time::NEVER)?;
        }
        Ok(())
    }

    /// Adopts an id that another driver released. The id is in synchronous mode and has a new key. Both drivers must
    /// count time from the same epoch.
    ///
    /// # Errors
    /// Refused at the limits; the error contains the id. Failed if the driver cannot register the id's channel with its
    /// poller; the id is then destroyed.
    pub fn adopt(&mut self, released_id: ReleasedId<D::Handle>) -> Result<IdKey, AdoptError<D::Handle>> {
        let ReleasedId { released, handle, number } = released_id;
        let (id, channel) = match self.core.adopt(released) {
            Ok(keys) => keys,
            Err(ErrorWith { given: released, error: refused }) => {
                let given = Some(ReleasedId { released, handle, number });
                return Err(ErrorWith::new(given, refused));
            }
        };
        let outcome = self.outside.register(id, channel, handle);
        self.record(Step::Adopt { id, number, channel, outcome });
        if let Err(errno) = outcome {
            let error = self.data_failure("adopt", id, errno, None);
            // The device has dropped the id, so the core removes it too.
            drop(self.core.release(id));
            return Err(ErrorWith::new(None, error));
        }
        Ok(id)
    }
}
