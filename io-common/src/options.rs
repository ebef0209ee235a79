//! Options of listeners.

use cmid_proto::CmOption;

/// Options of a listener.
#[derive(Clone, Debug, Default)]
pub struct ListenOptions<'a> {
    /// Options of the id, such as the reuse of its address. They are set in order, before the bind.
    pub settings: &'a [CmOption],
    /// The maximum number of unread requests in the kernel. 0, or more than the kernel's maximum, selects that maximum.
    /// The kernel drops further requests, and the peers repeat them (`ucma_event_handler`); on iWARP it rejects them.
    pub backlog: i32,
}
