//! The keys of what a fabric keeps in its tables. They are in a module of their own because every table names others.

/// Names one host; it also stands for the GUID of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct HostNo(pub(crate) usize);

/// Names one RDMA device of a host; another one that comes after it has another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNo {
    pub(crate) host: HostNo,
    pub(crate) incarnation: u32,
}

/// Names one open channel of the fabric; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileNo(pub(crate) u64);

/// Names one id of the fabric; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct IdNo(pub(crate) u64);

/// The sender's name for a connection (`local_comm_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CommId(pub(crate) u32);

impl CommId {
    /// What stands where the sender has no connection.
    pub(crate) const NONE: CommId = CommId(0);
}

/// Names one queue pair: its number is its host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct QpNo {
    pub(crate) host: HostNo,
    pub(crate) num: u32,
}

/// Names one completion queue; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CqNo(pub(crate) u64);

/// Names one protection domain; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PdNo(pub(crate) u64);

/// Names one memory region; never used twice. A re-registration keeps it, even where the kernel makes a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MrHandle(pub(crate) u32);

/// Names one memory window; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MwNo(pub(crate) u64);
