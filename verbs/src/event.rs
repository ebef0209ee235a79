//! Reading one event: copied out, and acked at once.

use core::ptr::{self, NonNull};

use cmid_proto::{CmEvent, ConnParam, Errno, PRIVATE_DATA_MAX, ReceivedParam};

use crate::channel::Channel;
use crate::errno;
use crate::ffi::{self, ibv_qp_type, rdma_cm_event, rdma_cm_id};

/// Where the private data of the last event is kept.
pub(crate) type PrivateBuffer = [u8; PRIVATE_DATA_MAX];

/// A copy of an event that librdmacm no longer counts as outstanding.
pub(crate) struct Taken {
    /// The id that it is about; for CONNECT_REQUEST a new one that nobody owns yet.
    pub(crate) id: NonNull<rdma_cm_id>,
    /// For CONNECT_REQUEST, the listening id.
    pub(crate) listener: Option<NonNull<rdma_cm_id>>,
    pub(crate) kind: CmEvent,
    pub(crate) status: i32,
    pub(crate) param: ReceivedParam,
    /// How much of the buffer is the event's.
    pub(crate) private_len: usize,
}

/// What a channel had to say.
pub(crate) enum Read {
    Event(Taken),
    /// Nothing. Also when librdmacm swallowed what made the descriptor readable.
    Empty,
    /// A signal came first.
    Interrupted,
}

/// Takes the next event off a channel.
///
/// # Errors
/// What `rdma_get_cm_event` failed with, except `EAGAIN` and `EINTR`.
pub(crate) fn read(channel: &Channel, private: &mut PrivateBuffer) -> Result<Read, Errno> {
    let mut event = ptr::null_mut();
    // SAFETY: the channel is open and `event` is a place for the result. librdmacm follows the `qp` of the event's id:
    // `Id` holds the QP for as long as that field is set.
    let returned = unsafe { ffi::rdma_get_cm_event(channel.as_ptr(), &raw mut event) };
    match errno::of_rdma(returned) {
        Ok(()) => {}
        Err(Errno(ffi::EAGAIN)) => return Ok(Read::Empty),
        Err(Errno(ffi::EINTR)) => return Ok(Read::Interrupted),
        Err(errno) => return Err(errno),
    }
    // SAFETY: rdma_get_cm_event succeeded, so `event` points at an event that is ours until it is acked.
    let taken = unsafe { copy(&*event, private) };
    // SAFETY: the event was not acked before, and is not used again. It is acked even if the copy is of no use, or a
    // later rdma_destroy_id would wait for ever.
    unsafe { ffi::rdma_ack_cm_event(event) };
    taken.map(Read::Event)
}

/// # Safety
/// The event is one that librdmacm reported and that was not acked yet.
unsafe fn copy(event: &rdma_cm_event, private: &mut PrivateBuffer) -> Result<Taken, Errno> {
    let kind = CmEvent::from_code(event.event);
    let id = NonNull::new(event.id).ok_or(Errno::EIO)?;
    let listener = if kind == CmEvent::ConnectRequest { NonNull::new(event.listen_id) } else { None };
    // SAFETY: the id of an event that is not acked yet is alive.
    let qp_type = unsafe { (*id.as_ptr()).qp_type };

    let (param, data, len) = if !carries_parameters(kind) {
        (ReceivedParam::default(), ptr::null(), 0)
    } else if qp_type == ibv_qp_type::IBV_QPT_UD {
        // SAFETY: librdmacm fills `ud` for ids of this type, and starts from zeros.
        let ud = unsafe { &event.param.ud };
        let param = ConnParam { qp_num: ud.qp_num, ..*ReceivedParam::default() };
        (ReceivedParam(param), ud.private_data, ud.private_data_len)
    } else {
        // SAFETY: librdmacm fills `conn` for ids of all other types, and starts from zeros.
        let conn = unsafe { &event.param.conn };
        let param = ConnParam {
            responder_resources: conn.responder_resources,
            initiator_depth: conn.initiator_depth,
            flow_control: conn.flow_control != 0,
            retry_count: conn.retry_count,
            rnr_retry_count: conn.rnr_retry_count,
            srq: conn.srq != 0,
            qp_num: conn.qp_num,
        };
        (ReceivedParam(param), conn.private_data, conn.private_data_len)
    };

    let private_len = if data.is_null() { 0 } else { usize::from(len).min(private.len()) };
    if private_len > 0 {
        // SAFETY: a non-null `private_data` points at `private_data_len` bytes inside the event, which nobody writes to;
        // at most the size of our buffer is copied, and the two do not overlap.
        unsafe { ptr::copy_nonoverlapping(data.cast::<u8>(), private.as_mut_ptr(), private_len) };
    }
    Ok(Taken { id, listener, kind, status: event.status, param, private_len })
}

/// Whether the event's union holds connection parameters. It is not looked at otherwise: USER keeps an integer there
/// and the multicast events the application's pointer.
const fn carries_parameters(kind: CmEvent) -> bool {
    match kind {
        CmEvent::ConnectRequest
        | CmEvent::ConnectResponse
        | CmEvent::ConnectError
        | CmEvent::Unreachable
        | CmEvent::Rejected
        | CmEvent::Established
        | CmEvent::Disconnected => true,
        CmEvent::AddrResolved
        | CmEvent::AddrError
        | CmEvent::RouteResolved
        | CmEvent::RouteError
        | CmEvent::DeviceRemoval
        | CmEvent::MulticastJoin
        | CmEvent::MulticastError
        | CmEvent::AddrChange
        | CmEvent::TimewaitExit
        | CmEvent::AddrinfoResolved
        | CmEvent::AddrinfoError
        | CmEvent::User
        | CmEvent::Internal
        | CmEvent::Unknown(_) => false,
    }
}
