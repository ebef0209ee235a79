//! What a test may want to know about a fabric.

/// Counts since the fabric was made. All of them are for tests and reports; none influences what happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connection manager messages that were sent, retransmissions included.
    pub sent: u64,
    /// Messages that were sent again because no answer came in time.
    pub retransmitted: u64,
    /// Messages lost on the way ([`Config::loss`](crate::Config::loss)).
    pub lost: u64,
    /// Messages to an address where no RDMA device answers, or over a link that is down.
    pub undeliverable: u64,
    /// Events dropped because the id was not accepted yet (`ucma_event_handler`: no uid).
    pub unaccepted: u64,
    /// Events that librdmacm takes from the kernel and does not report (`rdma_get_cm_event`).
    pub swallowed: u64,
    /// Requests that a full backlog left unanswered (`ucma_connect_event_handler`).
    pub backlog_full: u64,
    /// Destroys that would have blocked for about 70 seconds, because a reject left a message of the id's own under
    /// way (`cm_destroy_id`).
    pub stalls: u64,
    /// Time waits that began while the one that had begun before it, of the same length, was not over
    /// ([`Config::time_waits_of_one_tick`](crate::Config::time_waits_of_one_tick)).
    pub time_waits_in_turn: u32,
    /// Datagrams lost on the way, to one receiver each ([`Config::loss`](crate::Config::loss)).
    pub datagrams_lost: u64,
    /// Datagrams that nobody took: no QP or group is there, no receive is posted or it is too short, or the queue key
    /// is another.
    pub datagrams_dropped: u64,
    /// Completions that did not fit into their completion queue.
    pub overruns: u64,
    /// Buffers that were given back while a registration at the device referred to them. Anything but 0 is a defect of
    /// the machines, or of a driver that says `EOPNOTSUPP` of what it has begun ([`Left`](crate::Left)).
    pub freed_in_use: u64,
    /// Copies at a poll ([`Config::copy_at_poll`](crate::Config::copy_at_poll)) to memory that was given back: uses after free.
    /// Anything but 0 is a defect of the accounting of what is in flight.
    pub copied_to_freed: u64,
}
