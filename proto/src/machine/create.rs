//! The creation of ids, and the opening and closing of channels.

use super::Core;
use super::begun::{Begun, DONE, Following, Then};
use super::next::Due;
use crate::call::{Call, Outcome};
use crate::channel::Channel;
use crate::errno::Errno;
use crate::error::{Failure, Fault, Refused};
use crate::id::Id;
use crate::key::{ChannelKey, IdKey, Target};
use crate::request::{Acks, PortSpace};
use crate::request_kind::RequestKind;
use crate::state::State;

impl Core {
    /// Begins the creation of an id on a channel (rdma_create_id(3)); with `None`, in synchronous mode. Returns the key that
    /// the id will have if all calls succeed. In synchronous mode there are two: the first one opens a channel.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`], [`Refused::ChannelFailed`]; [`Refused::Full`] at the limit on ids or, in
    /// synchronous mode, on channels.
    #[inline(always)]
    pub fn create_id(
        &mut self,
        channel: Option<ChannelKey>,
        port_space: PortSpace,
    ) -> Result<(IdKey, Begun<'_, 'static>), Refused> {
        let id = if self.has_room() { self.ids.next_key() } else { None };
        let id = id.ok_or(Refused::Full("ids"))?;
        let (call, then) = match channel {
            Some(channel) => {
                let channel = self.target_channel(channel)?;
                (Call::CreateId { id, channel, port_space }, Then::Create { sync: false })
            }
            None => {
                let channel = self.channels.next_key().ok_or(Refused::Full("channels"))?;
                (Call::OpenChannel { channel }, Then::OpenToCreate(id, port_space))
            }
        };
        Ok((id, Begun::new(self, call, &[], then)))
    }

    /// Begins the opening of an event channel (rdma_create_event_channel(3)). Returns the key that the channel will have.
    ///
    /// # Errors
    /// [`Refused::Full`] at the limit on channels.
    pub fn open_channel(&mut self, acks: Acks) -> Result<(ChannelKey, Begun<'_, 'static>), Refused> {
        let channel = self.channels.next_key().ok_or(Refused::Full("channels"))?;
        Ok((channel, Begun::new(self, Call::OpenChannel { channel }, &[], Then::Open(acks))))
    }

    /// Begins the closing of an event channel (rdma_destroy_event_channel(3)). The function of librdmacm would destroy the
    /// ids on the channel in the kernel, and leave dangling structures in the library. Here all ids must leave the channel
    /// first.
    ///
    /// # Errors
    /// [`Refused::NoSuchChannel`]; [`Refused::ChannelInUse`] while the channel has ids or untaken events, or belongs to an
    /// id in synchronous mode or to a listener.
    pub fn close_channel(&mut self, channel: ChannelKey) -> Result<Begun<'_, 'static>, Refused> {
        self.usable_channel(channel)?;
        match self.channels.get(channel) {
            Some(it) if it.ids == 0 && it.events.is_empty() => {
                Ok(Begun::new(self, Call::CloseChannel { channel }, &[], Then::Close { asked: true }))
            }
            Some(_) | None => Err(Refused::ChannelInUse { channel }),
        }
    }

    /// Handles the outcome of the opening of a channel, and goes on with the request that it is part of.
    pub(super) fn opened<'r>(&mut self, channel: ChannelKey, then: Then<'r>, outcome: Outcome) -> Following<'r> {
        const OPEN: &str = "create_event_channel";
        match (then, outcome) {
            (Then::Open(acks), Ok(())) => {
                self.channels.insert(Channel::new(acks, false));
                DONE
            }
            (Then::Open(_), Err(errno)) => {
                let target = Target::Channel(channel);
                Failure { call: OPEN, target, state: State::Idle, errno, cause: None }.into()
            }
            (Then::OpenToCreate(id, port_space), Ok(())) => {
                self.insert_private(None);
                Following::Call(Call::CreateId { id, channel, port_space }, Then::Create { sync: true })
            }
            (Then::OpenToCreate(id, _), Err(errno)) => self.failure(id, OPEN, errno).into(),
            (Then::OpenToListen { id, backlog }, Ok(())) => {
                self.insert_private(Some(id));
                let from = self.device_channel(id).unwrap_or(channel);
                Following::Call(Call::Migrate { id, from, to: channel }, Then::MoveToListen { backlog })
            }
            (Then::OpenToListen { id, .. }, Err(errno)) => self.failure(id, OPEN, errno).into(),
            (Then::OpenToMigrate { id, by_event }, Ok(())) => {
                self.insert_private(None);
                let from = self.device_channel(id).unwrap_or(channel);
                Following::Call(Call::Migrate { id, from, to: channel }, Then::Migrate { by_event })
            }
            (Then::OpenToMigrate { id, by_event }, Err(errno)) => {
                self.migrate_failed(id, by_event, self.failure(id, OPEN, errno))
            }
            // No other call opens a channel.
            _ => DONE,
        }
    }

    /// Inserts a private channel that counts the id which is to come to it.
    fn insert_private(&mut self, listener: Option<IdKey>) {
        self.channels.insert(Channel { ids: 1, listener, ..Channel::new(Acks::OnDelivery, true) });
    }

    pub(super) fn closed(&mut self, channel: ChannelKey, asked: bool, outcome: Outcome) -> Following<'static> {
        self.made(Due::Close(channel));
        self.remove_channel(channel);
        let Err(errno) = outcome else { return DONE };
        let (call, target) = ("destroy_event_channel", Target::Channel(channel));
        if asked {
            Failure { call, target, state: State::Idle, errno, cause: None }.into()
        } else {
            Fault::Leak { call, target, errno }.into()
        }
    }

    pub(super) fn created(
        &mut self,
        key: IdKey,
        channel: ChannelKey,
        port_space: PortSpace,
        sync: bool,
        outcome: Outcome,
    ) -> Following<'static> {
        match outcome {
            Ok(()) => {
                self.ids.insert(Id::new(port_space, channel, sync));
                // A private channel counts the id already.
                if !sync {
                    self.join_channel(channel);
                }
                DONE
            }
            Err(errno) => {
                if sync {
                    self.leave_channel(channel);
                }
                self.failure(key, "create_id", errno).into()
            }
        }
    }

    pub(super) fn failed(&self, key: IdKey, request: RequestKind, errno: Errno) -> Following<'static> {
        self.failure(key, request.name(), errno).into()
    }
}
