//! Keys and commands for tests with a scripted kernel.

use cmid_proto::{Call, ChannelKey, CmEvent, Device as _, Errno, IdKey, PortSpace};

use super::KernelCm;
use super::abi::{Command, offset};

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

/// Answers with an event of the id with this uid and this number of the kernel.
pub(super) fn put_event(into: &mut [u8], uid: u64, handle: u32, kind: CmEvent) {
    into.fill(0);
    into[..8].copy_from_slice(&uid.to_ne_bytes());
    into[offset::EVENT_ID..][..4].copy_from_slice(&handle.to_ne_bytes());
    into[offset::EVENT_KIND..][..4].copy_from_slice(&kind.code().to_ne_bytes());
}

/// Opens a channel and creates an id on it, both with the key of the slot.
pub(super) fn create(device: &mut KernelCm, slot: u32, port_space: PortSpace) {
    assert_eq!(device.call(&Call::OpenChannel { channel: channel(slot) }, &[]), Ok(()));
    assert_eq!(device.call(&Call::CreateId { id: id(slot), channel: channel(slot), port_space }, &[]), Ok(()));
}

/// A device with a channel and an id, both with the key of slot 0.
pub(super) fn with_id(port_space: PortSpace) -> KernelCm {
    let Ok(mut device) = KernelCm::open(1) else { unreachable!("the kernel is scripted") };
    create(&mut device, 0, port_space);
    device
}
