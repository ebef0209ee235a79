//! Reads the next event of a channel, and finds its id.

use core::ptr::NonNull;

use cmid_proto::{ChannelKey, CmEvent, Errno, IdKey, RawEvent};

use crate::ffi;
use crate::kernel::QueuePair as _;
use crate::librdmacm::device::Rdmacm;
use crate::librdmacm::event::{self, Read, Unacked};
use crate::librdmacm::id::{self, Id};

impl Rdmacm {
    /// Reads the next event, as [`Device::fetch`](cmid_proto::Device::fetch).
    pub(super) fn next_event(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        // Reserves a slot before any read, so that a request is not lost for lack of one.
        self.tables.make_room_for_id(child)?;
        // A read may give no event for the core: it was interrupted by a signal, or the event is of an id that this
        // device does not know (no case is known). Each takes an event from the kernel's queue, which the backlogs limit.
        loop {
            if let Some(id) = self.lost_on(on) {
                return Ok(Some(RawEvent::new(id, CmEvent::DeviceRemoval)));
            }
            let event = match event::read(self.tables.channel(on)?)? {
                Read::Event(event) => event,
                Read::Empty => return Ok(None),
                Read::Interrupted => continue,
            };
            let (new, kind) = (event.id()?, event.kind());
            let (id, listener) = match event.listener(kind) {
                // SAFETY: the new id is from this event.
                Some(listener) => match unsafe { self.file_child(on, child, new, listener) } {
                    Ok(listener) => (child, Some(listener)),
                    Err(refused) => {
                        // In this order, so that the event is acked before its id is destroyed.
                        drop(event);
                        drop(refused);
                        continue;
                    }
                },
                None => match self.known(new) {
                    Some(id) => (id, None),
                    None => continue,
                },
            };
            self.note(id, &event, kind);
            // The event is built in its final place and acked after that, so nothing is copied twice.
            return Ok(Some(event.raw(id, listener, kind, &mut self.private)));
        }
    }

    /// Stores the new id of a request that was read from `on`, and returns its listener.
    ///
    /// # Errors
    /// The new id, if the listener is unknown: dropping it rejects the request.
    ///
    /// # Safety
    /// librdmacm made `new` for a CONNECT_REQUEST that was just read from `on`, with this listener, and no other code
    /// has seen it.
    unsafe fn file_child(
        &mut self,
        on: ChannelKey,
        child: IdKey,
        new: NonNull<ffi::rdma_cm_id>,
        listener: NonNull<ffi::rdma_cm_id>,
    ) -> Result<IdKey, Id> {
        // SAFETY: as the caller promises. `on` stays open: the id is stored with it, or dropped before the next call.
        let mut id = unsafe { Id::child(new, self.contexts.process()) };
        let Some(listener) = self.known(listener) else { return Err(id) };
        id.set_key(child);
        // `fetch` has reserved the slot.
        self.tables.insert(child, on, id)?;
        Ok(listener)
    }

    /// Handles what an event means for the QP and the device of its id.
    fn note(&mut self, key: IdKey, event: &Unacked, kind: CmEvent) {
        if kind == CmEvent::DeviceRemoval {
            self.note_removal(key);
        } else if kind == CmEvent::MulticastJoin {
            self.note_join(key, event);
        } else if kind == CmEvent::Established {
            let qp = self.tables.id(key).ok().and_then(|id| id.qp.as_ref());
            qp.into_iter().for_each(|qp| qp.note_depth(event.responder_resources()));
        }
    }

    fn note_removal(&self, key: IdKey) {
        let Ok(id) = self.tables.id(key) else { return };
        id.qp.iter().for_each(|qp| qp.note_removal());
        if let Some(verbs) = id.verbs() {
            self.contexts.removed(verbs);
        }
    }

    fn note_join(&mut self, key: IdKey, event: &Unacked) {
        let raw = event.raw(key, None, event.kind(), &mut self.private);
        if let (Some(group), Some(to), Ok(id)) = (raw.group, &raw.datagram, self.tables.id_mut(key)) {
            id.joined(group, &to.path);
        }
    }

    /// Takes an id on this channel that ended with its device.
    fn lost_on(&mut self, on: ChannelKey) -> Option<IdKey> {
        let at = self.lost.iter().position(|(channel, _)| *channel == on)?;
        let (_, id) = self.lost.swap_remove(at);
        self.tables.id(id).is_ok_and(Id::has_ended).then_some(id)
    }

    /// The key of an id of librdmacm, if it is one of this device.
    fn known(&self, raw: NonNull<ffi::rdma_cm_id>) -> Option<IdKey> {
        // SAFETY: librdmacm named it in an event that was read just now, and only this device, which is borrowed,
        // destroys the ids that report to its channels.
        let key = unsafe { id::key_of(raw) }?;
        // An id that is set aside no longer belongs to the core.
        (self.tables.ids.get_filed(key)?.id.as_ptr() == raw.as_ptr()).then_some(key)
    }
}
