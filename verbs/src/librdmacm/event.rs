//! Reads one event: copies it and acks it at once.

use core::ptr::{self, NonNull};

use cmid_proto::{CmEvent, ConnParam, Datagram, Errno, GroupKey, IdKey, PrivateData, RawEvent, ReceivedParam};

use crate::contents::{Contents, contents};
use crate::data;
use crate::errno;
use crate::ffi::{self, ibv_qp_type, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_ud_param};
use crate::librdmacm::channel::Channel;

/// Buffer for the private data of the last event.
pub(crate) type PrivateBuffer = [u8; PrivateData::MAX];

/// An unacked event of librdmacm. Dropping it acks it, even if it is ignored: otherwise a later rdma_destroy_id would
/// wait for ever.
pub(crate) struct Unacked(NonNull<rdma_cm_event>);

/// The result of a read.
pub(crate) enum Read {
    Event(Unacked),
    /// No event. librdmacm may have consumed the event that made the descriptor readable.
    Empty,
    /// A signal interrupted the read.
    Interrupted,
}

/// Reads the next event of a channel.
///
/// # Errors
/// The errno of `rdma_get_cm_event`, except `EAGAIN` and `EINTR`.
pub(crate) fn read(channel: &Channel) -> Result<Read, Errno> {
    let mut event = ptr::null_mut();
    // SAFETY: the channel is open and `event` is a place for the result. librdmacm follows the `qp` of the event's id;
    // `Id` holds the QP for as long as that field is set. It also follows its record of the event's group; the kernel
    // has no event of a group with a freed record (see `Id::leave`).
    match errno::of_call(|| unsafe { ffi::rdma_get_cm_event(channel.as_ptr(), &raw mut event) }) {
        Ok(()) => Ok(Read::Event(Unacked(NonNull::new(event).ok_or(Errno::EIO)?))),
        Err(Errno(ffi::EAGAIN)) => Ok(Read::Empty),
        Err(Errno(ffi::EINTR)) => Ok(Read::Interrupted),
        Err(errno) => Err(errno),
    }
}

impl Unacked {
    fn get(&self) -> &rdma_cm_event {
        // SAFETY: rdma_get_cm_event has returned it, and it is not acked yet. Until then it belongs to this value,
        // and no other code writes to it.
        unsafe { self.0.as_ref() }
    }

    /// Returns the id of the event. For CONNECT_REQUEST it is a new id without an owner.
    ///
    /// # Errors
    /// `EIO` if the event has none.
    pub(crate) fn id(&self) -> Result<NonNull<rdma_cm_id>, Errno> {
        NonNull::new(self.get().id).ok_or(Errno::EIO)
    }

    pub(crate) fn kind(&self) -> CmEvent {
        CmEvent::from_code(self.get().event)
    }

    /// Returns the listening id of a CONNECT_REQUEST; `None` for other events.
    pub(crate) fn listener(&self, kind: CmEvent) -> Option<NonNull<rdma_cm_id>> {
        if kind == CmEvent::ConnectRequest { NonNull::new(self.get().listen_id) } else { None }
    }

    /// Converts the event, with the core's keys. Copies its private data to `private`, because the event is acked
    /// before the core reads it.
    pub(crate) fn raw<'a>(
        &self,
        id: IdKey,
        listener: Option<IdKey>,
        kind: CmEvent,
        private: &'a mut PrivateBuffer,
    ) -> RawEvent<&'a [u8]> {
        let event = self.get();
        let mut raw = RawEvent { listener, status: event.status, ..RawEvent::new(id, kind) };
        match contents(kind) {
            Contents::Nothing => {}
            Contents::Argument => {
                // SAFETY: librdmacm writes the argument to the start of the union, which begins with a pointer in this arm.
                // The pointer is a number here, and never followed.
                let argument = unsafe { event.param.conn.private_data }.addr() as u64;
                let kept = &mut private[..size_of::<u64>()];
                kept.copy_from_slice(&argument.to_ne_bytes());
                raw.private_data = kept;
            }
            Contents::Group => {
                // SAFETY: librdmacm fills `ud` for these events, and starts from zeros.
                set_group(&mut raw, unsafe { &event.param.ud });
            }
            Contents::Parameters if self.is_datagram() => {
                // SAFETY: librdmacm fills `ud` for ids of this type, and starts from zeros. The event is not acked yet,
                // so its private data is valid.
                unsafe { set_datagram(&mut raw, &event.param.ud, private) };
            }
            Contents::Parameters => {
                // SAFETY: librdmacm fills `conn` for ids of all other types, and starts from zeros.
                let conn = unsafe { &event.param.conn };
                raw.param = parameters(conn);
                // SAFETY: the event is not acked yet, so its private data is valid.
                raw.private_data = unsafe { keep(conn.private_data, conn.private_data_len, private) };
            }
        }
        raw
    }

    /// Returns the `responder_resources` of an event of a connection; without a meaning for others.
    pub(crate) fn responder_resources(&self) -> u8 {
        // SAFETY: librdmacm starts from zeros, and each pattern is a value of these integers and pointers.
        unsafe { self.get().param.conn }.responder_resources
    }

    /// Whether its id is for datagrams.
    fn is_datagram(&self) -> bool {
        let id = self.get().id;
        // SAFETY: the id of an event that is not acked yet is alive, if there is one.
        !id.is_null() && unsafe { (*id).qp_type } == ibv_qp_type::IBV_QPT_UD
    }
}

impl Drop for Unacked {
    fn drop(&mut self) {
        // SAFETY: the event was not acked before, and is not used again.
        unsafe { ffi::rdma_ack_cm_event(self.0.as_ptr()) };
    }
}

/// Fills in the fields of a group's events.
#[cold]
fn set_group(raw: &mut RawEvent<&[u8]>, ud: &rdma_ud_param) {
    // The context of the join is a number, which is never followed. There is no private data.
    raw.group = GroupKey::from_bits(ud.private_data.addr() as u64);
    raw.datagram = (raw.kind == CmEvent::MulticastJoin).then(|| datagram(ud));
}

/// Fills in the fields of a datagram id's events.
///
/// # Safety
/// The contract of [`keep`] for the private data.
#[cold]
unsafe fn set_datagram<'a>(raw: &mut RawEvent<&'a [u8]>, ud: &rdma_ud_param, private: &'a mut PrivateBuffer) {
    raw.datagram = (raw.kind == CmEvent::Established).then(|| datagram(ud));
    // SAFETY: as the caller promises.
    raw.private_data = unsafe { keep(ud.private_data, ud.private_data_len, private) };
}

/// Copies private data to the buffer.
///
/// # Safety
/// `data` is null, or `len` bytes can be read there and no code writes to them.
unsafe fn keep(data: *const ffi::c_void, len: u8, private: &mut PrivateBuffer) -> &[u8] {
    let len = if data.is_null() { 0 } else { usize::from(len).min(private.len()) };
    let kept = &mut private[..len];
    if len > 0 {
        // SAFETY: as the caller promises; at most the size of our buffer is copied, and the two do not overlap.
        unsafe { ptr::copy_nonoverlapping(data.cast::<u8>(), kept.as_mut_ptr(), len) };
    }
    kept
}

fn parameters(conn: &rdma_conn_param) -> ReceivedParam {
    ReceivedParam(ConnParam {
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
        flow_control: conn.flow_control != 0,
        retry_count: conn.retry_count,
        rnr_retry_count: conn.rnr_retry_count,
        srq: conn.srq != 0,
        qp_num: conn.qp_num,
    })
}

fn datagram(ud: &rdma_ud_param) -> Datagram {
    Datagram { qp_num: ud.qp_num, qkey: ud.qkey, path: data::path_from_c(&ud.ah_attr) }
}
