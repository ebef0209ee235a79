//! Reading one event: copied out, and acked at once.

use core::ptr::{self, NonNull};

use cmid_proto::{CmEvent, ConnParam, Datagram, Errno, GroupKey, PRIVATE_DATA_MAX, ReceivedParam};

use crate::channel::Channel;
use crate::data;
use crate::errno;
use crate::ffi::{self, ibv_qp_type, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_ud_param};

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
    /// For ESTABLISHED of a lookup and for MULTICAST_JOIN.
    pub(crate) datagram: Option<Datagram>,
    /// For MULTICAST_JOIN and MULTICAST_ERROR, if what came back is a key.
    pub(crate) group: Option<GroupKey>,
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
    // `Id` holds the QP for as long as that field is set. And it follows its record of the event's group: the kernel has
    // no event of a group whose record is freed (see `Id::leave`).
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
    let mut taken = Taken {
        id,
        listener,
        kind,
        status: event.status,
        param: ReceivedParam::default(),
        datagram: None,
        group: None,
        private_len: 0,
    };
    match contents(kind) {
        Contents::Nothing => {}
        Contents::Group => {
            // SAFETY: librdmacm fills `ud` for these events, and starts from zeros.
            let ud = unsafe { &event.param.ud };
            // The context of the join, which is a number here; it is never followed, and no data is behind it.
            taken.group = GroupKey::from_bits(ud.private_data.addr() as u64);
            taken.datagram = (kind == CmEvent::MulticastJoin).then(|| datagram(ud));
        }
        Contents::Parameters if qp_type == ibv_qp_type::IBV_QPT_UD => {
            // SAFETY: librdmacm fills `ud` for ids of this type, and starts from zeros.
            let ud = unsafe { &event.param.ud };
            taken.datagram = (kind == CmEvent::Established).then(|| datagram(ud));
            // SAFETY: the private data of an event that is not acked yet.
            taken.private_len = unsafe { keep(ud.private_data, ud.private_data_len, private) };
        }
        Contents::Parameters => {
            // SAFETY: librdmacm fills `conn` for ids of all other types, and starts from zeros.
            let conn = unsafe { &event.param.conn };
            taken.param = parameters(conn);
            // SAFETY: the private data of an event that is not acked yet.
            taken.private_len = unsafe { keep(conn.private_data, conn.private_data_len, private) };
        }
    }
    Ok(taken)
}

/// Copies private data and says how much there was of it.
///
/// # Safety
/// Unless `data` is null, `len` bytes can be read there, and nobody writes to them.
unsafe fn keep(data: *const ffi::c_void, len: u8, private: &mut PrivateBuffer) -> usize {
    if data.is_null() {
        return 0;
    }
    let len = usize::from(len).min(private.len());
    // SAFETY: as the caller promises; at most the size of our buffer is copied, and the two do not overlap.
    unsafe { ptr::copy_nonoverlapping(data.cast::<u8>(), private.as_mut_ptr(), len) };
    len
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

/// What an event has in its union.
enum Contents {
    /// Nothing that is looked at; USER keeps an integer there.
    Nothing,
    /// Parameters and private data.
    Parameters,
    /// Where the group is, and in the place of private data the application's pointer.
    Group,
}

const fn contents(kind: CmEvent) -> Contents {
    match kind {
        CmEvent::ConnectRequest
        | CmEvent::ConnectResponse
        | CmEvent::ConnectError
        | CmEvent::Unreachable
        | CmEvent::Rejected
        | CmEvent::Established
        | CmEvent::Disconnected => Contents::Parameters,
        CmEvent::MulticastJoin | CmEvent::MulticastError => Contents::Group,
        CmEvent::AddrResolved
        | CmEvent::AddrError
        | CmEvent::RouteResolved
        | CmEvent::RouteError
        | CmEvent::DeviceRemoval
        | CmEvent::AddrChange
        | CmEvent::TimewaitExit
        | CmEvent::AddrinfoResolved
        | CmEvent::AddrinfoError
        | CmEvent::User
        | CmEvent::Internal
        | CmEvent::Unknown(_) => Contents::Nothing,
    }
}
