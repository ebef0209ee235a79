//! A faithful device: event channels, ids, and unread events, with the kernel's rules for moving and destroying them.

use std::collections::VecDeque;

use cmid_proto::{Call, ChannelKey, CmEvent, Errno, IdKey, Outcome, RawEvent};

use super::kernel::Kernel;
use crate::connections::invariant::Invariant;

/// The state of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Device {
    channels: Vec<Channel>,
    ids: Vec<Id>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Channel {
    key: ChannelKey,
    unread: VecDeque<Unread>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Id {
    key: IdKey,
    on: ChannelKey,
    state: Kernel,
}

/// An unread event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Unread {
    /// For CONNECT_REQUEST the listener.
    owner: IdKey,
    kind: CmEvent,
    /// Its unique status.
    tag: i32,
}

impl Device {
    /// Executes a call; fails with `errno` if given.
    pub(super) fn call(&mut self, call: &Call, errno: Option<Errno>) -> Result<Outcome, Invariant> {
        match *call {
            Call::OpenChannel { channel } if errno.is_none() => {
                self.channels.push(Channel { key: channel, unread: VecDeque::new() });
            }
            Call::CloseChannel { channel } => {
                self.channel(channel)?;
                if self.ids.iter().any(|id| id.on == channel) {
                    return Err(Invariant::ClosesUnderIds);
                }
                self.channels.retain(|it| it.key != channel);
            }
            Call::CreateId { id, channel, .. } if errno.is_none() => {
                self.channel(channel)?;
                self.ids.push(Id { key: id, on: channel, state: Kernel::Idle });
            }
            Call::OpenChannel { .. } | Call::CreateId { .. } => {}
            Call::Migrate { id, from, to } => return self.migrate(id, from, to, errno),
            Call::Destroy { id } => {
                self.id(id)?;
                if errno.is_none() {
                    self.ids.retain(|it| it.key != id);
                    self.channels.iter_mut().for_each(|channel| channel.unread.retain(|event| event.owner != id));
                }
            }
            Call::Bind { .. }
            | Call::ResolveAddr { .. }
            | Call::ResolveRoute { .. }
            | Call::Listen { .. }
            | Call::Connect { .. }
            | Call::Accept { .. }
            | Call::Reject { .. }
            | Call::Establish { .. }
            | Call::Disconnect { .. }
            | Call::Notify { .. }
            | Call::Join { .. }
            | Call::Leave { .. }
            | Call::SetOption { .. }
            | Call::SetEce { .. } => return self.state_call(call, errno),
        }
        Ok(errno.map_or(Ok(()), Err))
    }

    /// A call that takes an id from one state to another.
    fn state_call(&mut self, call: &Call, errno: Option<Errno>) -> Result<Outcome, Invariant> {
        if let Call::Accept { id, .. } = *call {
            let on = self.id(id)?.on;
            if self.ids.iter().any(|other| other.on == on && other.state == Kernel::Listening) {
                return Err(Invariant::AcceptsOnListenersChannel);
            }
        }
        let id = self.id(call.id().ok_or(Invariant::NamesWhatIsNotThere)?)?;
        Ok(match id.state.after(call).filter(|_| errno.is_none()) {
            Some(next) => {
                id.state = next;
                Ok(())
            }
            None => {
                id.state = id.state.after_failure(call);
                Err(errno.unwrap_or(Errno::EINVAL))
            }
        })
    }

    /// `ucma_migrate_id`: moves the unread events to the end of the other channel, without a wakeup.
    fn migrate(
        &mut self,
        id: IdKey,
        from: ChannelKey,
        to: ChannelKey,
        errno: Option<Errno>,
    ) -> Result<Outcome, Invariant> {
        self.channel(to)?;
        let it = self.id(id)?;
        if it.state == Kernel::Listening {
            return Err(Invariant::MovesListener);
        }
        if it.on != from {
            return Err(Invariant::NamesWhatIsNotThere);
        }
        if let Some(errno) = errno {
            return Ok(Err(errno));
        }
        it.on = to;
        if from != to {
            let left = self.channel(from)?;
            let moving: Vec<_> = left.unread.iter().copied().filter(|event| event.owner == id).collect();
            left.unread.retain(|event| event.owner != id);
            self.channel(to)?.unread.extend(moving);
        }
        Ok(Ok(()))
    }

    /// Reads one event; stores the new id of a request under `child`.
    pub(super) fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&'static [u8]>>, Invariant> {
        let Some(event) = self.channel(on)?.unread.pop_front() else { return Ok(None) };
        let raw = RawEvent { status: event.tag, ..RawEvent::new(event.owner, event.kind) };
        if event.kind != CmEvent::ConnectRequest {
            return Ok(Some(raw));
        }
        self.ids.push(Id { key: child, on, state: Kernel::Requested });
        Ok(Some(RawEvent { id: child, listener: Some(event.owner), ..raw }))
    }

    /// The possible external events of an id, with the kernel's state after each.
    pub(super) fn happenings(&self, key: IdKey, removal: bool) -> Vec<(CmEvent, Kernel)> {
        let Some(id) = self.ids.iter().find(|id| id.key == key) else { return Vec::new() };
        let mut all = id.state.reports().to_vec();
        if id.state == Kernel::Listening {
            all.push((CmEvent::ConnectRequest, id.state));
        }
        // The kernel reports nothing for an id with an unanswered request (`ucma_event_handler`).
        if id.state.has_device() && id.state != Kernel::Requested {
            if removal {
                all.push((CmEvent::DeviceRemoval, Kernel::Removed));
            } else if matches!(id.state, Kernel::Bound) {
                all.push((CmEvent::AddrChange, id.state));
            }
        }
        all
    }

    /// Applies an external event; returns the channel that becomes readable.
    pub(super) fn report(
        &mut self,
        key: IdKey,
        kind: CmEvent,
        next: Kernel,
        tag: i32,
    ) -> Result<ChannelKey, Invariant> {
        let id = self.id(key)?;
        id.state = next;
        let on = id.on;
        self.channel(on)?.unread.push_back(Unread { owner: key, kind, tag });
        Ok(on)
    }

    pub(super) fn unread_of(&self, id: IdKey) -> usize {
        self.channels.iter().flat_map(|channel| &channel.unread).filter(|event| event.owner == id).count()
    }

    pub(super) fn unread(&self) -> usize {
        self.channels.iter().map(|channel| channel.unread.len()).sum()
    }

    /// Whether no id and no channel is left.
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.channels.is_empty()
    }

    fn channel(&mut self, key: ChannelKey) -> Result<&mut Channel, Invariant> {
        self.channels.iter_mut().find(|channel| channel.key == key).ok_or(Invariant::NamesWhatIsNotThere)
    }

    fn id(&mut self, key: IdKey) -> Result<&mut Id, Invariant> {
        self.ids.iter_mut().find(|id| id.key == key).ok_or(Invariant::NamesWhatIsNotThere)
    }
}
