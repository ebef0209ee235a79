//! Keys and commands for tests with a scripted kernel.

use cmid_proto::{ChannelKey, Errno, IdKey};

use super::abi::Command;

pub(super) const CREATE_ID: u32 = Command::CreateId as u32;
pub(super) const DESTROY_ID: u32 = Command::DestroyId as u32;
pub(super) const GET_EVENT: u32 = Command::GetEvent as u32;
pub(super) const MIGRATE_ID: u32 = Command::MigrateId as u32;
pub(super) const QUERY: u32 = Command::Query as u32;

/// Returns the number of a command.
pub(super) fn number_of(command: &[u8]) -> Result<u32, Errno> {
    command.first_chunk().map(|number| u32::from_ne_bytes(*number)).ok_or(Errno::EINVAL)
}

/// Returns the key of the first id in a slot.
pub(super) fn id(slot: u32) -> IdKey {
    let Some(id) = IdKey::from_parts(0, slot, 1) else { unreachable!("{slot} is a slot") };
    id
}

/// Returns the key of the first channel in a slot.
pub(super) fn channel(slot: u32) -> ChannelKey {
    let Some(channel) = ChannelKey::from_parts(0, slot, 1) else { unreachable!("{slot} is a slot") };
    channel
}
