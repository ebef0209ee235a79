//! `Verbs`: the device, over either backend.

use core::fmt;
use core::net::SocketAddr;
use core::ptr::NonNull;
use core::str::FromStr;
use std::os::fd::BorrowedFd;

use cmid_proto::datapath::Attaching;
use cmid_proto::datapath::{Caps, CreateCall, CreateError, CreateReason, DataPath, OfDevice, QpState, RdmaDevice};
use cmid_proto::{Call, ChannelKey, Device, Ece, Errno, IdKey, Outcome, Pollable, RawEvent, Transport};

use crate::data::{self, Ah, AsyncEvents, CompChannel, Cq, Mr, Mw, Nic, Pd, Piece, PostCalls, Qp, QpInit, Srq};
use crate::ffi;
use crate::kernel::{KernelCm, KernelHandle, OpenError};
use crate::librdmacm::{self, Rdmacm};
use crate::raw;

/// The connection manager of a [`Verbs`]. The data path is the same. The [crate documentation](crate#backends) compares
/// the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// librdmacm.
    Librdmacm,
    /// The kernel's own interface, `/dev/infiniband/rdma_cm`, without librdmacm.
    #[default]
    Kernel,
}

impl Backend {
    /// Returns its name: `librdmacm` or `kernel`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Librdmacm => "librdmacm",
            Backend::Kernel => "kernel",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let all = [Backend::Librdmacm, Backend::Kernel];
        all.into_iter().find(|backend| backend.name() == name).ok_or_else(|| UnknownBackend(name.into()))
    }
}

/// A name that no [`Backend`] has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBackend(String);

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no backend is called {:?}: the names are librdmacm and kernel", self.0)
    }
}

impl std::error::Error for UnknownBackend {}

/// The RDMA devices of this machine.
///
/// It holds ids and event channels under the core's keys. Dropping it destroys all of them, ids first. Objects of the
/// data path ([`Qp`], [`Cq`], [`Pd`], [`Mr`]) live as long as their handles. It can be moved to another
/// thread; one thread at a time uses it.
///
/// A program that has a network without RDMA too asks first:
///
/// ```no_run
/// use cmid_verbs::Verbs;
///
/// let device = Verbs::open().inspect_err(|error| eprintln!("no RDMA: {error}")).ok(); // `None`: by TCP
/// # let _ = device;
/// ```
pub struct Verbs {
    cm: Cm,
    post_calls: PostCalls,
}

enum Cm {
    Librdmacm(Rdmacm),
    Kernel(KernelCm),
}

/// An id and its own channel, outside of any [`Verbs`]; see [`Device::release`].
///
/// Dropping it destroys the id and then the channel; the peer of a connection gets DISCONNECTED.
pub struct Handle(Held);

enum Held {
    Librdmacm(librdmacm::Handle),
    Kernel(KernelHandle),
}

/// Calls the same method of either backend.
macro_rules! either {
    ($verbs:expr, $cm:ident => $call:expr) => {
        match $verbs {
            Cm::Librdmacm($cm) => $call,
            Cm::Kernel($cm) => $call,
        }
    };
}

impl Verbs {
    /// Creates a device without ids, over the default backend. No variable of the environment selects another one: a program
    /// that lets its user choose passes a parsed [`Backend`] to [`Verbs::open_with`].
    ///
    /// A program opens it once, and creates the device of each further core by [`Pollable::sibling`]. Siblings share the
    /// open RDMA devices, so a PD, CQ or SRQ of one serves QPs of all, on both backends. On the kernel backend two
    /// `Verbs::open` open each RDMA device twice, and their objects do not mix:
    /// [`CreateReason::OtherDevice`](cmid_proto::datapath::CreateReason::OtherDevice) (`EINVAL`). Over librdmacm, which opens
    /// each RDMA device once in a process, they do.
    ///
    /// ```no_run
    /// use cmid_proto::Pollable as _;
    /// use cmid_verbs::Verbs;
    ///
    /// let first = Verbs::open()?;
    /// let second = first.sibling(); // for a second connection, listener or thread
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Verbs::open_with`] for [`Backend::Kernel`].
    pub fn open() -> Result<Self, OpenError> {
        Self::open_with(Backend::default())
    }

    /// Creates a device without ids, over a backend. Over [`Backend::Librdmacm`] it opens one event channel, for the
    /// ids that keep the devices of the data path open; a [sibling](Pollable::sibling) shares it.
    ///
    /// # Errors
    /// [`OpenError::NoLibrary`] without libibverbs, or, over [`Backend::Librdmacm`], without librdmacm.
    /// `EMFILE` with fewer than about ten free descriptors: libibverbs loads its providers here, once in the life of the
    /// process. Otherwise the error names the part of the kernel's interface that is missing or forbidden, with its path. Over
    /// [`Backend::Librdmacm`] also [`OpenError::WaitsForIbacm`] [where ibacm runs](crate#ibacm), [`OpenError::NoDevice`]
    /// without an RDMA device, and [`OpenError::Failed`] with another errno of rdma_create_event_channel(3).
    pub fn open_with(backend: Backend) -> Result<Self, OpenError> {
        ffi::load_ibverbs()?;
        let cm = match backend {
            Backend::Librdmacm => Cm::Librdmacm(Rdmacm::open()?),
            Backend::Kernel => Cm::Kernel(KernelCm::with_qps()?),
        };
        Ok(Verbs { cm, post_calls: PostCalls::default() })
    }

    /// Returns the connection manager in use.
    #[must_use]
    pub fn backend(&self) -> Backend {
        match self.cm {
            Cm::Librdmacm(_) => Backend::Librdmacm,
            Cm::Kernel(_) => Backend::Kernel,
        }
    }

    /// Sets the calls that post to QPs that are created later. The default is [`PostCalls::Extended`].
    pub fn set_post_calls(&mut self, calls: PostCalls) {
        self.post_calls = calls;
    }

    /// Returns the numbers of ids and channels, including those that the core has dropped and that could not be destroyed
    /// so far. Their destruction is repeated, at the latest when the device is dropped. With more than
    /// [`KeyTable::ASIDE_MAX`](cmid_proto::key_table::KeyTable::ASIDE_MAX) of a kind, calls that need one of their slots fail with
    /// `EBUSY`.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        either!(&self.cm, cm => cm.tables.counts())
    }
}

impl Verbs {
    /// Returns the attributes that move a QP of the application to `state`: INIT, RTR or RTS (rdma_init_qp_attr(3)).
    /// For ids without a QP of this crate; see [`raw`].
    ///
    /// # Errors
    /// `ENOENT` for an unknown id; `EINVAL` for another state, or if the id's own state has no such attributes;
    /// `ENODEV` while the id has no device.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn qp_attr(&mut self, id: IdKey, state: QpState) -> Result<raw::QpAttr, Errno> {
        if ![QpState::INIT, QpState::RTR, QpState::RTS].contains(&state) {
            return Err(Errno::EINVAL);
        }
        either!(&mut self.cm, cm => cm.qp_attr(id, state))
    }

    /// Returns the `rdma_cm_id` of an id; see [`raw`]. `ENOSYS` on the kernel backend, which has none.
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `ENXIO` for one that has ended.
    ///
    /// # Safety
    /// The pointer is used only as long as the id lives, on the thread of this device, and for no call that creates,
    /// destroys, migrates, binds, resolves, listens, connects, accepts, rejects or disconnects, or attaches a QP.
    pub unsafe fn raw_id(&mut self, id: IdKey) -> Result<NonNull<raw::RdmaCmId>, Errno> {
        match &mut self.cm {
            Cm::Librdmacm(cm) => cm.raw_id(id),
            Cm::Kernel(_) => Err(Errno::ENOSYS),
        }
    }
}

impl DataPath for Verbs {
    type Pd = Pd;
    type Mr = Mr;
    type Mw = Mw;
    type Cq = Cq;
    type CompChannel = CompChannel;
    type Qp = Qp;
    type Ah = Ah;
    type Srq = Srq;
    type Piece = Piece;
    type Nic = Nic;
    type AsyncEvents = AsyncEvents;

    /// No other device is opened. The handle also contains the port of the id, which matters for datagrams: see
    /// [`ProtectionDomain::create_ah_from`](cmid_proto::datapath::ProtectionDomain::create_ah_from).
    ///
    /// Over librdmacm this needs no descriptor. An id that is bound to the device keeps it open: at a free port of
    /// the space `RDMA_PS_IB`, on the channel of [`Verbs::open`]. If no address can be bound, as on the loopback
    /// address of InfiniBand, rdma_get_devices(3) is used, with the consequences that [`devices`](crate::devices)
    /// describes. On the kernel backend it opens the device (ibv_open_device(3)).
    ///
    /// # Errors
    /// On the kernel backend also [`CreateReason::Node`](cmid_proto::datapath::CreateReason::Node), and the errno of opening
    /// the device.
    fn device_of(&mut self, id: IdKey) -> Result<Nic, CreateError> {
        let context = either!(&mut self.cm, cm => cm.context(id));
        let (context, port_num) = context.map_err(|errno| self.device_error(id, errno))?;
        Ok(Nic::new(context, port_num))
    }

    /// The descriptor belongs to the `ibv_context`: a second reader of the same device takes events away from the
    /// first.
    fn async_events(&mut self, nic: &Nic) -> Result<AsyncEvents, CreateError> {
        AsyncEvents::open(nic.context()).map_err(CreateCall::AsyncEvents.failed())
    }

    fn alloc_pd_on(&mut self, nic: &Nic) -> Result<Pd, CreateError> {
        Pd::alloc(nic.context(), nic.port_num()).map_err(CreateCall::AllocPd.failed())
    }

    fn create_cq_at(
        &mut self,
        nic: &Nic,
        channel: Option<&CompChannel>,
        depth: u32,
        vector: u32,
    ) -> Result<Cq, CreateError> {
        let on = nic.context();
        let made = match channel {
            None => Cq::create(nic.context(), depth, vector),
            Some(channel) => {
                let of = channel.raw().context();
                if !of.is(on.verbs()) {
                    return Err(data::other_device(CreateCall::CreateCq, OfDevice::CompChannel, of, &on));
                }
                Cq::create_with_channel(channel, depth, vector)
            }
        };
        made.map_err(|errno| data::cq_error(&on, depth, vector, errno))
    }

    fn create_comp_channel(&mut self, nic: &Nic) -> Result<CompChannel, CreateError> {
        CompChannel::create(nic.context()).map_err(CreateCall::CreateCompChannel.failed())
    }

    /// # Errors
    /// `ENOMEM` also if one of the CQs has 65,535 work queues: a QP with one CQ for sends and receives counts as two. A
    /// destroyed QP occupies its room and its places until every completion is polled that it may have left.
    fn make_qp(
        &mut self,
        attaching: Attaching<'_>,
        pd: &Pd,
        [send_cq, recv_cq]: [&Cq; 2],
        srq: Option<&Srq>,
        caps: Caps,
    ) -> Result<Qp, CreateError> {
        let init = QpInit { pd, send_cq, recv_cq, srq, caps, post_calls: self.post_calls };
        let made = either!(&mut self.cm, cm => cm.create_qp(attaching.id(), &init));
        made.map(Qp::new).map_err(|errno| self.qp_error(attaching.id(), &init, errno))
    }

    /// Some providers discard the completions of the QP at once (`__mlx5_cq_clean`). With others they are discarded
    /// when [`CompletionQueue::poll`](cmid_proto::datapath::CompletionQueue::poll) reaches them. The QP receives
    /// nothing from multicast groups any more; the id stays in them.
    fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno> {
        either!(&mut self.cm, cm => cm.destroy_qp(id))
    }
}

impl Verbs {
    #[cold]
    fn qp_error(&mut self, id: IdKey, init: &QpInit<'_>, errno: Errno) -> CreateError {
        let device = either!(&mut self.cm, cm => cm.qp_device(id, init.pd));
        if either!(&self.cm, cm => cm.has_qp(id)) {
            return CreateError::new(CreateCall::CreateQp, CreateReason::HasQp);
        }
        data::qp_error(device.as_ref(), init, errno)
    }

    #[cold]
    fn device_error(&mut self, id: IdKey, errno: Errno) -> CreateError {
        let node = match &mut self.cm {
            Cm::Librdmacm(_) => None,
            Cm::Kernel(cm) => cm.node_error(id, errno),
        };
        CreateError::new(CreateCall::DeviceOf, node.unwrap_or(CreateReason::Device(errno)))
    }
}

impl Device for Verbs {
    type Handle = Handle;

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        either!(&mut self.cm, cm => cm.fetch(on, child))
    }

    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        either!(&mut self.cm, cm => cm.call(call, private_data))
    }

    fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        either!(&self.cm, cm => cm.local_addr(id))
    }

    fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        either!(&self.cm, cm => cm.peer_addr(id))
    }

    fn transport(&mut self, id: IdKey) -> Option<Transport> {
        either!(&mut self.cm, cm => cm.transport(id))
    }

    fn has_qp(&self, id: IdKey) -> Option<bool> {
        Some(either!(&self.cm, cm => cm.has_qp(id)))
    }

    fn discard_qp(&mut self, id: IdKey) {
        // It fails if there is none.
        let _ = either!(&mut self.cm, cm => cm.destroy_qp(id));
    }

    /// The peer's options for enhanced connection establishment, from its request or answer (`rdma_get_remote_ece`).
    ///
    /// # Errors
    /// `ENOENT` for an unknown id, `EINVAL` once it has a QP.
    fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno> {
        either!(&self.cm, cm => cm.remote_ece(id))
    }

    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<Handle, Errno> {
        match &mut self.cm {
            Cm::Librdmacm(cm) => cm.release(id, channel).map(|held| Handle(Held::Librdmacm(held))),
            Cm::Kernel(cm) => cm.release(id, channel).map(|held| Handle(Held::Kernel(held))),
        }
    }

    /// # Errors
    /// `EINVAL` for a handle of another backend, and for keys in use. The handle is dropped, and with it the id.
    fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: Handle) -> Result<(), Errno> {
        match (&mut self.cm, handle.0) {
            (Cm::Librdmacm(cm), Held::Librdmacm(held)) => cm.adopt(id, channel, held),
            (Cm::Kernel(cm), Held::Kernel(held)) => cm.adopt(id, channel, held),
            (Cm::Librdmacm(_), Held::Kernel(_)) | (Cm::Kernel(_), Held::Librdmacm(_)) => Err(Errno::EINVAL),
        }
    }
}

impl Pollable for Verbs {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        either!(&self.cm, cm => cm.fd(on))
    }

    fn sibling(&self) -> Self {
        let cm = match &self.cm {
            Cm::Librdmacm(cm) => Cm::Librdmacm(cm.sibling()),
            Cm::Kernel(cm) => Cm::Kernel(cm.sibling()),
        };
        Verbs { cm, post_calls: self.post_calls }
    }
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ids, channels) = self.counts();
        let mut debug = f.debug_struct("Verbs");
        debug.field("backend", &self.backend()).field("ids", &ids).field("channels", &channels).finish()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Held::Librdmacm(held) => held.fmt(f),
            Held::Kernel(held) => held.fmt(f),
        }
    }
}
