//! The points at which both sides synchronize.

/// A state that both sides must reach before either continues, if the plan is to synchronize. The number is that of
/// cmtime's step (`enum step` in rdma-core's cmtime.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// The server listens; the client is about to begin.
    Ready = 0,
    /// All connections of the round are established.
    Connected = 12,
    /// All connections of the round are disconnected.
    Disconnected = 14,
}
