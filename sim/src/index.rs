//! The keys of the tables of a fabric. They are in one module because the tables refer to each other.

use cmid_proto::datapath::DeviceName;

/// Names one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct HostNo(pub(crate) usize);

/// Names one RDMA device of a host; each later device of the host has another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNo {
    pub(crate) host: HostNo,
    /// Its position among the devices that the host has at a time.
    pub(crate) index: u8,
    pub(crate) incarnation: u32,
}

impl DeviceNo {
    /// The name in errors, by the host's number in the fabric.
    pub(crate) fn name(self) -> DeviceName {
        DeviceName::new(format!("sim{}_{}", self.host.0, self.index).as_bytes())
    }
}

/// Names one open channel of the fabric; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileNo(pub(crate) u64);

/// Names one id of the fabric; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct IdNo(pub(crate) u64);

/// The sender's name for a connection (`local_comm_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CommId(pub(crate) u32);

impl CommId {
    /// The value if the sender has no connection.
    pub(crate) const NONE: CommId = CommId(0);
}

/// Names one queue pair, by its host and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct QpNo {
    pub(crate) host: HostNo,
    pub(crate) num: u32,
}

/// Names one completion queue; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CqNo(pub(crate) u64);

impl CqNo {
    /// Returns the number that asynchronous events contain.
    pub(crate) fn number(self) -> u32 {
        self.0 as u32
    }
}

/// Names one shared receive queue; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SrqNo(pub(crate) u64);

impl SrqNo {
    /// Returns the number that asynchronous events contain.
    pub(crate) fn number(self) -> u32 {
        self.0 as u32
    }
}

/// Names one protection domain; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PdNo(pub(crate) u64);

/// Names one memory region; never reused. A re-registration keeps it, even if the kernel makes a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MrHandle(pub(crate) u32);

/// Names one memory window; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MwNo(pub(crate) u64);
