//! The trait of a device with a data path.

use alloc::vec::Vec;
use core::fmt;

use super::{
    AsyncEventQueue, Caps, CompletionChannel, CompletionQueue, CreateError, DeviceAttrs, MemoryRegion, MemoryWindow,
    Piece, PortAttrs, PortGid, ProtectionDomain, QpBuilder, QueuePair, SharedReceiveQueue,
};
use crate::device::Pollable;
use crate::drive::Attaching;
use crate::errno::Errno;
use crate::key::IdKey;

/// A handle of an RDMA device. Handles of the same device are equal.
pub trait RdmaDevice: Clone + PartialEq + Send + Sync + fmt::Debug {
    /// Returns the port that the id was on, counted from 1; 0 if the id had no port.
    fn port_num(&self) -> u8;

    /// Returns the number of completion vectors (`ibv_context.num_comp_vectors`).
    #[doc(alias = "num_comp_vectors")]
    fn comp_vectors(&self) -> u32;

    /// Returns what the device can do (ibv_query_device(3)). Opens no other device.
    ///
    /// # Errors
    /// The errno of the device: `EIO` or `ENODEV` after it is removed.
    #[doc(alias = "ibv_query_device")]
    fn attrs(&self) -> Result<DeviceAttrs, Errno>;

    /// Returns what a port is now (ibv_query_port(3)). Ports are numbered from 1.
    ///
    /// # Errors
    /// `EINVAL` for a port that the device does not have; otherwise as [`RdmaDevice::attrs`].
    #[doc(alias = "ibv_query_port")]
    fn port_attrs(&self, port: u8) -> Result<PortAttrs, Errno>;

    /// Returns the GIDs of a port, without the empty entries of its table (ibv_query_gid_table(3)).
    ///
    /// # Errors
    /// As [`RdmaDevice::port_attrs`].
    #[doc(alias("ibv_query_gid_table", "ibv_query_gid_ex"))]
    fn gids(&self, port: u8) -> Result<Vec<PortGid>, Errno>;
}

/// A device with a data path. Dropping one of its objects destroys it, after the objects that depend on it.
pub trait DataPath: Pollable + Send {
    /// Protection domains.
    type Pd: ProtectionDomain<Mr = Self::Mr, Ah = Self::Ah, Mw = Self::Mw, Srq = Self::Srq, Piece = Self::Piece>;
    /// Memory regions.
    type Mr: MemoryRegion<Pd = Self::Pd>;
    /// Memory windows.
    type Mw: MemoryWindow<Piece = Self::Piece>;
    /// Completion queues.
    type Cq: CompletionQueue;
    /// Completion channels of several CQs.
    type CompChannel: CompletionChannel;
    /// Queue pairs.
    type Qp: QueuePair<Mr = Self::Mr, Mw = Self::Mw, Ah = Self::Ah, Piece = Self::Piece>;
    /// Address handles.
    type Ah: Send + Sync;
    /// Shared receive queues.
    type Srq: SharedReceiveQueue<Mr = Self::Mr, Piece = Self::Piece>;
    /// The memory of blocks.
    type Piece: Piece;
    /// Handles of RDMA devices.
    type Nic: RdmaDevice;
    /// Asynchronous events of a device.
    type AsyncEvents: AsyncEventQueue;

    /// Returns the RDMA device of an id (`rdma_cm_id.verbs`). A server on a wildcard address uses it to select the PD
    /// and the MRs for a connection request. The handle keeps the device open.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id. `ENODEV` while the id has no device: before it is bound to a specific address or
    /// ADDR_RESOLVED is read, and after the device is removed. [`CreateReason::Node`](super::CreateReason::Node) if the
    /// node of the device is missing or forbidden. Else the errno of the device.
    #[doc(alias = "ibv_context")]
    fn device_of(&mut self, id: IdKey) -> Result<Self::Nic, CreateError>;

    /// Allocates a protection domain (ibv_alloc_pd(3)).
    ///
    /// # Errors
    /// `ENODEV` or `EIO` after the device is removed; `ENOMEM`.
    #[doc(alias = "ibv_alloc_pd")]
    fn alloc_pd_on(&mut self, nic: &Self::Nic) -> Result<Self::Pd, CreateError>;

    /// Creates a completion queue for `depth` completions (ibv_create_cq(3)), with its own non-blocking completion
    /// channel or with one that other CQs use too. Its notifications use the completion vector `vector`, from 0 on. On
    /// most devices a vector is an interrupt, which the system assigns to a CPU.
    ///
    /// # Errors
    /// As [`DataPath::alloc_pd_on`]. [`CreateReason::TooLarge`](super::CreateReason::TooLarge) for a depth above the
    /// device's maximum, [`Zero`](super::CreateReason::Zero) for 0, [`NoVector`](super::CreateReason::NoVector) for a
    /// vector that is not below [`RdmaDevice::comp_vectors`]; `EMFILE` for its own channel.
    /// [`OtherDevice`](super::CreateReason::OtherDevice) if the channel is of another device.
    #[doc(alias("ibv_create_cq", "ibv_create_comp_channel"))]
    fn create_cq_at(
        &mut self,
        nic: &Self::Nic,
        channel: Option<&Self::CompChannel>,
        depth: u32,
        vector: u32,
    ) -> Result<Self::Cq, CreateError>;

    /// Creates a completion channel for several CQs (ibv_create_comp_channel(3)).
    ///
    /// # Errors
    /// As [`DataPath::alloc_pd_on`]; `EMFILE`.
    #[doc(alias = "ibv_create_comp_channel")]
    fn create_comp_channel(&mut self, nic: &Self::Nic) -> Result<Self::CompChannel, CreateError>;

    /// Returns the asynchronous events of a device, for one reader. Unread events stay in the kernel, which does not
    /// limit their number.
    ///
    /// # Errors
    /// `ENODEV` after the device is removed; the errno of making its descriptor non-blocking.
    #[doc(alias = "ibv_get_async_event")]
    fn async_events(&mut self, nic: &Self::Nic) -> Result<Self::AsyncEvents, CreateError>;

    /// Creates a QP with the CQs of its sends and receives: [`DataPath::create_qp`], or with an SRQ
    /// [`DataPath::create_qp_with_srq`], which sets the receive capacities to 0: the caller of this method is to do so.
    ///
    /// # Errors
    /// Those of the two.
    fn make_qp(
        &mut self,
        attaching: Attaching<'_>,
        pd: &Self::Pd,
        cqs: [&Self::Cq; 2],
        srq: Option<&Self::Srq>,
        caps: Caps,
    ) -> Result<Self::Qp, CreateError>;

    /// Detaches the QP from an id (rdma_destroy_qp(3)). If the handle of the QP exists, the QP enters its error state
    /// and is destroyed with the handle. Otherwise it is destroyed now.
    ///
    /// Poll its CQs empty first, because remaining completions may be lost with the QP. After the destruction, its work
    /// requests pin their memory until the CQs are polled empty.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EINVAL` if it has no QP.
    #[doc(alias("rdma_destroy_qp", "ibv_destroy_qp"))]
    fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno>;

    /// Returns the most bytes of a datagram on the path of an id: the active MTU of its port. A longer datagram is refused by
    /// its post, with [`PostReason::DatagramTooLong`](super::PostReason::DatagramTooLong). On the way there may be links with a
    /// smaller MTU, which lose it.
    ///
    /// # Errors
    /// As [`DataPath::device_of`] and [`RdmaDevice::port_attrs`].
    fn path_mtu(&mut self, id: IdKey) -> Result<u32, CreateError> {
        let nic = self.device_of(id)?;
        Ok(nic.port_attrs(nic.port_num())?.active_mtu)
    }

    /// Allocates a protection domain on the device of an id.
    ///
    /// # Errors
    /// As [`DataPath::device_of`] and [`DataPath::alloc_pd_on`].
    #[doc(alias = "ibv_alloc_pd")]
    fn alloc_pd(&mut self, id: IdKey) -> Result<Self::Pd, CreateError> {
        let nic = self.device_of(id)?;
        self.alloc_pd_on(&nic)
    }

    /// Creates a completion queue with its own channel and completion vector 0.
    ///
    /// # Errors
    /// As [`DataPath::create_cq_at`].
    fn create_cq_on(&mut self, nic: &Self::Nic, depth: u32) -> Result<Self::Cq, CreateError> {
        self.create_cq_at(nic, None, depth, 0)
    }

    /// Creates a completion queue with completion vector 0 on the device of an id.
    ///
    /// # Errors
    /// As [`DataPath::device_of`] and [`DataPath::create_cq_on`].
    #[doc(alias("ibv_create_cq", "ibv_create_comp_channel"))]
    fn create_cq(&mut self, id: IdKey, depth: u32) -> Result<Self::Cq, CreateError> {
        let nic = self.device_of(id)?;
        self.create_cq_on(&nic, depth)
    }

    /// Begins a QP with its PD and CQs, in the closure of [`Drive::attach_qp`](crate::Drive::attach_qp), of a connect or
    /// of an accept. [`Drive::qp`](crate::Drive::qp) is the same without a closure.
    fn qp<'d>(&'d mut self, attaching: Attaching<'d>) -> QpBuilder<'d, (&'d mut Self, Attaching<'d>), Self>
    where
        Self: Sized,
    {
        QpBuilder::new((self, attaching))
    }

    /// Creates a QP on an id (rdma_create_qp(3)), in the closure of [`Drive::attach_qp`](crate::Drive::attach_qp). The
    /// port space of the id determines the type of the QP. The state of a reliable connected QP follows that of the
    /// connection. A datagram QP can send at once, and is attached to the multicast groups that the id joins.
    ///
    /// The id owns the QP. The handle posts to it, on any thread.
    ///
    /// # Errors
    /// As [`DataPath::device_of`]. [`CreateReason::TooLarge`](super::CreateReason::TooLarge) with the capacity that is
    /// above the device's maximum. [`OtherDevice`](super::CreateReason::OtherDevice) with the PD or CQ that is of another
    /// device. [`Overrun`](super::CreateReason::Overrun) if a CQ has no room for the completions of all work requests of
    /// `caps` in addition to those of its other QPs ([`CompletionQueue::room`]).
    /// [`HasQp`](super::CreateReason::HasQp) if the id has a QP. `EINVAL` if the connection has ended. `ENOMEM`.
    #[doc(alias("rdma_create_qp", "ibv_create_qp"))]
    fn create_qp(
        &mut self,
        attaching: Attaching<'_>,
        pd: &Self::Pd,
        send_cq: &Self::Cq,
        recv_cq: &Self::Cq,
        caps: Caps,
    ) -> Result<Self::Qp, CreateError> {
        self.make_qp(attaching, pd, [send_cq, recv_cq], None, caps)
    }

    /// Creates a QP on an id that takes its receives from a shared receive queue (`srq` of `struct ibv_qp_init_attr`).
    /// The receive capacities of `caps` have no meaning. Posting a receive to the QP fails with `EINVAL`.
    ///
    /// # Errors
    /// As [`DataPath::create_qp`]. [`CreateReason::OtherPd`](super::CreateReason::OtherPd) if the SRQ is of another PD.
    /// [`Overrun`](super::CreateReason::Overrun) also if `recv_cq` has no room for the completions of
    /// [`SrqCaps::max_wr`](super::SrqCaps::max_wr) receives, once for all QPs of this SRQ.
    fn create_qp_with_srq(
        &mut self,
        attaching: Attaching<'_>,
        pd: &Self::Pd,
        send_cq: &Self::Cq,
        recv_cq: &Self::Cq,
        srq: &Self::Srq,
        caps: Caps,
    ) -> Result<Self::Qp, CreateError> {
        let caps = Caps { max_recv_wr: 0, max_recv_sge: 0, ..caps };
        self.make_qp(attaching, pd, [send_cq, recv_cq], Some(srq), caps)
    }
}
