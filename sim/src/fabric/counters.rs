//! Counters of a fabric, for tests.

/// Counts since the fabric was created, for tests and reports. They do not influence the simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connection manager messages that were sent, retransmissions included.
    pub sent: u64,
    /// Retransmissions of messages without an answer in time.
    pub retransmitted: u64,
    /// Messages lost in transit ([`Config::loss`](crate::Config::loss)).
    pub lost: u64,
    /// Messages to an address where no RDMA device answers, or over a link that is down.
    pub undeliverable: u64,
    /// Events dropped because the id was not accepted yet (`ucma_event_handler`: no uid).
    pub unaccepted: u64,
    /// Events that librdmacm takes from the kernel and does not report (`rdma_get_cm_event`).
    pub swallowed: u64,
    /// Requests ignored because the backlog was full (`ucma_connect_event_handler`).
    pub backlog_full: u64,
    /// Destroys that would have blocked for about 70 seconds, because a reject left a message of the id outstanding
    /// (`cm_destroy_id`).
    pub stalls: u64,
    /// Disconnects and destroys on an iWARP device that would have blocked until the answer to the id's request came
    /// (`iw_cm_disconnect`, `destroy_cm_id`).
    pub waits_for_answer: u64,
    /// Time waits that began before the previous one of the same length was over
    /// ([`Config::time_waits_of_one_tick`](crate::Config::time_waits_of_one_tick)).
    pub time_waits_in_turn: u32,
    /// Packets of connected QPs that a [`Rule`](crate::Rule) has lost.
    pub packets_lost: u64,
    /// Datagrams lost in transit, counted per receiver ([`Config::loss`](crate::Config::loss)).
    pub datagrams_lost: u64,
    /// Datagrams without a receiver: there is no such QP or group, no receive is posted or it is too short, or the
    /// queue key differs.
    pub datagrams_dropped: u64,
    /// Completions that did not fit into their completion queue.
    pub overruns: u64,
    /// Invalidations of a memory window that is not bound, by this side or by a peer: soft-RoCE's kernel follows null
    /// pointers (`rxe_do_invalidate_mw`). The simulator rejects them.
    pub unbound_invalidated: u64,
    /// Packets of iWARP that came after one that had ended the connection. Whether such a request completes, is flushed
    /// or fails depends on the kernel's scheduler.
    pub after_end: u64,
    /// Buffers returned while a registration at the device referred to them. A value other than 0 is a defect of the
    /// state machines, or of a driver that returns `EOPNOTSUPP` after it has begun a change ([`Left`](crate::Left)).
    pub freed_in_use: u64,
    /// Copies at a poll ([`Config::copy_at_poll`](crate::Config::copy_at_poll)) to memory that was returned: uses
    /// after free. A value other than 0 is a defect in the accounting of work in flight.
    pub copied_to_freed: u64,
}
