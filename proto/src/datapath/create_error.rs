//! The errors of creations: the call, and the reason.

use core::fmt;

use super::{ModifyError, PostError};
use crate::columns::columns;
use crate::datapath::Overrun;
use crate::errno::Errno;
use crate::memory;
use crate::words::{converts, debug_in_words};

/// An object of the data path was not created. Nothing has changed.
///
/// It is also the error of the closure of [`Drive::attach_qp`](crate::Drive::attach_qp), so the other errors of the data
/// path convert into it. They have no [`CreateError::call`] then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}{reason}", Called(*.call))]
pub struct CreateError {
    call: Option<CreateCall>,
    reason: CreateReason,
}

static_assertions::const_assert!(size_of::<CreateError>() <= 48);

impl CreateError {
    /// Creates the error of a call.
    #[must_use]
    pub const fn new(call: CreateCall, reason: CreateReason) -> Self {
        CreateError { call: Some(call), reason }
    }

    /// Returns the call; `None` for an error that was converted from another one.
    #[must_use]
    pub const fn call(&self) -> Option<CreateCall> {
        self.call
    }

    /// Returns the reason.
    #[must_use]
    pub const fn reason(&self) -> CreateReason {
        self.reason
    }

    /// Returns the errno that libibverbs returns for it, or the one that fits.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        self.reason.errno()
    }
}

columns! {
    /// A call that creates an object of the data path.
    pub enum CreateCall {
        /// [`DataPath::device_of`](super::DataPath::device_of).
        DeviceOf = "device_of",
        /// [`DataPath::alloc_pd`](super::DataPath::alloc_pd).
        AllocPd = "alloc_pd",
        /// [`DataPath::create_comp_channel`](super::DataPath::create_comp_channel).
        CreateCompChannel = "create_comp_channel",
        /// [`DataPath::create_cq`](super::DataPath::create_cq) or one of its other forms.
        CreateCq = "create_cq",
        /// [`DataPath::create_qp`](super::DataPath::create_qp) or `create_qp_with_srq`.
        CreateQp = "create_qp",
        /// [`ProtectionDomain::create_srq`](super::ProtectionDomain::create_srq).
        CreateSrq = "create_srq",
        /// [`ProtectionDomain::alloc_mw`](super::ProtectionDomain::alloc_mw).
        AllocMw = "alloc_mw",
        /// [`ProtectionDomain::create_ah`](super::ProtectionDomain::create_ah) or `create_ah_from`.
        CreateAh = "create_ah",
        /// [`DataPath::async_events`](super::DataPath::async_events).
        AsyncEvents = "async_events",
        /// [`CompletionQueue::resize`](super::CompletionQueue::resize), which creates the queue anew.
        ResizeCq = "resize",
    }
}

impl CreateCall {
    /// Returns a conversion of the reason or errno of this call, for `map_err`.
    pub fn failed<R: Into<CreateReason>>(self) -> impl Fn(R) -> CreateError {
        move |reason| CreateError::new(self, reason.into())
    }
}

/// The beginning of an error's text.
struct Called(Option<CreateCall>);

impl fmt::Display for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |call| write!(f, "{call}: "))
    }
}

/// The reason why an object was not created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CreateReason {
    /// A capacity is above the device's maximum.
    #[error("{capacity} {asked}, more than the device's maximum of {max}")]
    TooLarge {
        /// The capacity.
        capacity: Capacity,
        /// The value that was requested.
        asked: u32,
        /// The maximum. That of [`Capacity::MaxInline`] is one for the other capacities of the same request.
        max: u32,
    },
    /// A queue for nothing: a CQ or SRQ of this capacity 0.
    #[error("{0} 0: at least 1 is needed")]
    Zero(Capacity),
    /// The device has fewer completion vectors.
    #[error("completion vector {vector}: the device has {vectors}, counted from 0")]
    NoVector {
        /// The vector that was requested.
        vector: u32,
        /// [`RdmaDevice::comp_vectors`](super::RdmaDevice::comp_vectors).
        vectors: u32,
    },
    /// An object of another device than that of the new one. If both names are equal, the device was opened twice, such as
    /// by two `cmid_verbs::Verbs::open` on the kernel backend. Open it once, and create the second device by
    /// `Pollable::sibling`: siblings share objects.
    #[error("{object} is {}", Elsewhere(*.of, *.on))]
    OtherDevice {
        /// The object.
        object: OfDevice,
        /// The name of its device.
        of: DeviceName,
        /// The name of the device of the new object.
        on: DeviceName,
    },
    /// The SRQ is of another PD than that of the new QP.
    #[error("the SRQ is of another PD")]
    OtherPd,
    /// A CQ has no room for the completions of the new QP.
    #[error("{0}")]
    Overrun(Overrun),
    /// A CQ would be too small for the queues that use it.
    #[error("depth {depth}, less than the {reserved} work requests of the queues that use the CQ")]
    Reserved {
        /// The depth that was requested.
        depth: u32,
        /// [`CqRoom::reserved`](super::CqRoom::reserved).
        reserved: u32,
    },
    /// The id has a QP.
    #[error("the id has a QP")]
    HasQp,
    /// The PD cannot be used.
    #[error("the PD: {0}")]
    Pd(memory::MemoryReason),
    /// The node of the device could not be opened.
    #[error("/dev/infiniband/{node} cannot be opened: {errno}")]
    Node {
        /// The name of the node.
        node: DeviceName,
        /// The errno of open(2): `ENOENT` without the node, `EACCES` or `EPERM` without permission.
        errno: Errno,
    },
    /// The errno of the device, or of its library.
    #[error("{0}")]
    Device(Errno),
    /// Memory was not registered, in the closure of [`Drive::attach_qp`](crate::Drive::attach_qp).
    #[error("{0}")]
    Register(memory::MemoryError),
    /// A work request was not posted to the new QP, in the closure of [`Drive::attach_qp`](crate::Drive::attach_qp).
    #[error("{0}")]
    Post(PostError),
    /// The new QP cannot have these attributes, in the closure of [`Drive::attach_qp`](crate::Drive::attach_qp).
    #[error("{0}")]
    Modify(ModifyError),
}

impl CreateReason {
    /// Returns the errno that libibverbs returns for it, or the one that fits.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            CreateReason::TooLarge { .. }
            | CreateReason::Zero(_)
            | CreateReason::NoVector { .. }
            | CreateReason::OtherDevice { .. }
            | CreateReason::OtherPd
            | CreateReason::Reserved { .. }
            | CreateReason::HasQp => Errno::EINVAL,
            CreateReason::Overrun(_) => Errno::EOVERFLOW,
            CreateReason::Pd(reason) => reason.errno(),
            CreateReason::Node { errno, .. } | CreateReason::Device(errno) => errno,
            CreateReason::Register(error) => error.errno(),
            CreateReason::Post(error) => error.errno(),
            CreateReason::Modify(error) => error.reason.errno(),
        }
    }
}

columns! {
    /// A capacity of a queue.
    pub enum Capacity {
        /// [`Caps::max_send_wr`](super::Caps::max_send_wr).
        MaxSendWr = "max_send_wr",
        /// [`Caps::max_recv_wr`](super::Caps::max_recv_wr).
        MaxRecvWr = "max_recv_wr",
        /// [`Caps::max_send_sge`](super::Caps::max_send_sge).
        MaxSendSge = "max_send_sge",
        /// [`Caps::max_recv_sge`](super::Caps::max_recv_sge).
        MaxRecvSge = "max_recv_sge",
        /// [`Caps::max_inline`](super::Caps::max_inline).
        MaxInline = "max_inline",
        /// The depth of a CQ.
        Depth = "depth",
        /// [`SrqCaps::max_wr`](super::SrqCaps::max_wr).
        SrqMaxWr = "max_wr",
        /// [`SrqCaps::max_sge`](super::SrqCaps::max_sge).
        SrqMaxSge = "max_sge",
    }
}

columns! {
    /// An object of a device that a creation names.
    pub enum OfDevice {
        /// A protection domain.
        Pd = "the PD",
        /// The CQ of the send queue.
        SendCq = "the CQ of sends",
        /// The CQ of the receive queue.
        RecvCq = "the CQ of receives",
        /// A shared receive queue.
        Srq = "the SRQ",
        /// A completion channel.
        CompChannel = "the completion channel",
    }
}

/// Where an object is, and where the new one is to be.
struct Elsewhere(DeviceName, DeviceName);

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Elsewhere(of, on) = self;
        if of == on { write!(f, "of {of} as opened another time") } else { write!(f, "of {of}, not of {on}") }
    }
}

/// The name of a device or of its node, such as `mlx5_0`. Of more than 16 bytes it keeps the first 13.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceName([u8; DeviceName::LEN]);

impl DeviceName {
    const LEN: usize = 16;

    /// Creates a name. Bytes that are not ASCII become `?`.
    #[must_use]
    pub fn new(name: &[u8]) -> Self {
        const CUT: &[u8] = b"...";
        let mut bytes = [0; Self::LEN];
        bytes.iter_mut().zip(name).for_each(|(to, &from)| *to = if from.is_ascii_graphic() { from } else { b'?' });
        if name.len() > Self::LEN {
            bytes[Self::LEN - CUT.len()..].copy_from_slice(CUT);
        }
        DeviceName(bytes)
    }

    /// Returns it as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(Self::LEN);
        core::str::from_utf8(&self.0[..len]).unwrap_or_default()
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

debug_in_words!(CreateError, CreateReason, DeviceName);

converts! {
    Errno => CreateReason: CreateReason::Device;
    memory::MemoryRefused => CreateReason: |refused: memory::MemoryRefused| CreateReason::Pd(refused.reason);
    Errno => CreateError: |errno: Errno| CreateError { call: None, reason: errno.into() };
    memory::MemoryError => CreateError: |error: memory::MemoryError| CreateError { call: None, reason: CreateReason::Register(error) };
    PostError => CreateError: |error: PostError| CreateError { call: None, reason: CreateReason::Post(error) };
    ModifyError => CreateError: |error: ModifyError| CreateError { call: None, reason: CreateReason::Modify(error) };
    CreateError => Errno: |error: CreateError| error.errno();
}
