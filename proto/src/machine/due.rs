//! Calls that are due.

use crate::key::{ChannelKey, GroupKey, IdKey};

/// A call that is due, if its reason still holds when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Due {
    /// A migration that has waited for acks.
    Migrate(IdKey),
    /// A leave that has waited for acks.
    Leave(IdKey, GroupKey),
    /// The second disconnect of a teardown.
    Disconnect(IdKey),
    /// A destruction that has waited for acks or for the answer to a connect.
    Destroy(IdKey),
    /// The closing of a private channel after its last id.
    Close(ChannelKey),
}
