//! The reasons of failed creations. They are looked for after the failure, so a creation that succeeds pays nothing for
//! them: libibverbs and librdmacm return an errno, most often `EINVAL`, for a dozen reasons.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::CqRoom;
use cmid_proto::datapath::{Caps, CreateCall, CreateError, CreateReason, DeviceName, Maxima, OfDevice, SrqCaps};

use crate::accounting::poll::Provider as _;
use crate::data::{Context, Pd, QpInit};
use crate::errno;
use crate::ffi::{self, ibv_context, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_type};

/// The device that a QP is to be on: that of its id.
pub(crate) struct QpDevice {
    pub(crate) name: DeviceName,
    /// The context that its objects have to share; `None` if the PD is not on the device.
    pub(crate) verbs: Option<NonNull<ibv_context>>,
    pub(crate) datagrams: bool,
}

/// Returns the error of a CQ that could not be created.
#[cold]
pub(crate) fn cq_error(context: &Context, depth: u32, vector: u32, errno: Errno) -> CreateError {
    CreateError::new(CreateCall::CreateCq, cq_reason(context, depth, vector, errno))
}

/// Returns the reason why a CQ could not be created, or resized with vector 0.
#[cold]
pub(super) fn cq_reason(context: &Context, depth: u32, vector: u32, errno: Errno) -> CreateReason {
    look_for(errno, || maxima(context)?.cq(depth, vector))
}

/// Returns the error of an SRQ that could not be created.
#[cold]
pub(super) fn srq_error(pd: &Pd, caps: SrqCaps, errno: Errno) -> CreateError {
    let reason = look_for(errno, || refused(pd).or_else(|| maxima(pd.context())?.srq(caps)));
    CreateError::new(CreateCall::CreateSrq, reason)
}

/// Returns the error of a QP that could not be created.
#[cold]
pub(crate) fn qp_error(device: Option<&QpDevice>, init: &QpInit<'_>, errno: Errno) -> CreateError {
    let reason = look_for(errno, || {
        let device = device?;
        refused(init.pd)
            .or_else(|| maxima(init.pd.context())?.qp(&init.caps))
            .or_else(|| elsewhere(device, init))
            .or_else(|| overrun(init))
            .or_else(|| inline_maximum(device, init))
    });
    CreateError::new(CreateCall::CreateQp, reason)
}

/// Returns the error of an object of one device that is to be used on another one.
#[cold]
pub(crate) fn other_device(call: CreateCall, object: OfDevice, of: &Context, on: &Context) -> CreateError {
    let (of, on) = (name_of(of.verbs()), name_of(on.verbs()));
    CreateError::new(call, CreateReason::OtherDevice { object, of, on })
}

/// Returns the reason that `look` finds for an errno that has several reasons. Another one, such as `EOPNOTSUPP` of
/// soft-iWARP for an id without a route, has nothing to do with them.
fn look_for(errno: Errno, look: impl FnOnce() -> Option<CreateReason>) -> CreateReason {
    let has_reasons = [Errno::EINVAL, Errno::ENOMEM, Errno::EOVERFLOW, Errno::EIO, Errno::EACCES].contains(&errno);
    has_reasons.then(look).flatten().unwrap_or(CreateReason::Device(errno))
}

/// Returns why the PD accepts no users, if so.
fn refused(pd: &Pd) -> Option<CreateReason> {
    pd.enter().err().map(CreateReason::from)
}

/// Returns the first object of a QP that is not on its device.
fn elsewhere(device: &QpDevice, init: &QpInit<'_>) -> Option<CreateReason> {
    let (send_cq, recv_cq) = (init.send_cq.inner().context(), init.recv_cq.inner().context());
    let objects = [
        (OfDevice::Pd, Some(init.pd.context().verbs())),
        (OfDevice::SendCq, Some(send_cq.verbs())),
        (OfDevice::RecvCq, Some(recv_cq.verbs())),
        (OfDevice::Srq, init.srq.map(|srq| srq.pd().context().verbs())),
    ];
    let given = objects.into_iter().filter_map(|(object, verbs)| Some((object, verbs?)));
    if let Some((object, of)) = given.into_iter().find(|(_, verbs)| device.verbs != Some(*verbs)) {
        return Some(CreateReason::OtherDevice { object, of: name_of(of), on: device.name });
    }
    init.srq.filter(|srq| !Arc::ptr_eq(&srq.pd().0, &init.pd.0)).map(|_| CreateReason::OtherPd)
}

/// Returns the CQ that has no room.
fn overrun(init: &QpInit<'_>) -> Option<CreateReason> {
    let (send_cq, recv_cq, caps) = (init.send_cq.inner(), init.recv_cq.inner(), &init.caps);
    let receives = match init.srq {
        Some(srq) if recv_cq.cq_slots().has_srq(srq.table()) => 0,
        Some(srq) => srq.table().slots().capacity(),
        None => caps.max_recv_wr,
    };
    let [sends, receives] = if Arc::ptr_eq(send_cq, recv_cq) {
        [caps.max_send_wr.saturating_add(receives), 0]
    } else {
        [caps.max_send_wr, receives]
    };
    let rooms: [(CqRoom, u32); 2] = [(send_cq.cq_slots().room(), sends), (recv_cq.cq_slots().room(), receives)];
    rooms.into_iter().find_map(|(room, wanted)| room.check(wanted).err()).map(CreateReason::Overrun)
}

/// Returns the maximum of inline data, if the QP can be created without. No call tells it, so QPs are created and
/// destroyed again.
fn inline_maximum(device: &QpDevice, init: &QpInit<'_>) -> Option<CreateReason> {
    let asked = init.caps.max_inline;
    let is_possible = |max_inline| creates(device.datagrams, init, &Caps { max_inline, ..init.caps });
    if asked == 0 || !is_possible(0) {
        return None;
    }
    let (mut possible, mut impossible) = (0, asked);
    while impossible - possible > 1 {
        let middle = possible + (impossible - possible) / 2;
        if is_possible(middle) { possible = middle } else { impossible = middle }
    }
    Maxima { inline: possible, ..UNLIMITED }.qp(&init.caps)
}

/// Whether a QP with these capacities can be created.
fn creates(datagrams: bool, init: &QpInit<'_>, caps: &Caps) -> bool {
    let Ok(pd) = init.pd.enter() else { return false };
    // SAFETY: zeros are a value of it: integers and null pointers.
    let mut attr: ibv_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    (attr.send_cq, attr.recv_cq) = (init.send_cq.inner().as_ptr(), init.recv_cq.inner().as_ptr());
    attr.srq = init.srq.map_or(ptr::null_mut(), |srq| srq.as_ptr());
    attr.qp_type = if datagrams { ibv_qp_type::IBV_QPT_UD } else { ibv_qp_type::IBV_QPT_RC };
    attr.cap = ibv_qp_cap {
        max_send_wr: caps.max_send_wr,
        max_recv_wr: caps.max_recv_wr,
        max_send_sge: caps.max_send_sge,
        max_recv_sge: caps.max_recv_sge,
        max_inline_data: caps.max_inline,
    };
    // SAFETY: PD, CQs and SRQ are alive, and of one device (`elsewhere` was called before). The QP is destroyed at once,
    // and nothing was posted to it, so it leaves no completions.
    unsafe {
        let qp = ffi::ibv_create_qp(pd.as_ptr(), &raw mut attr);
        !qp.is_null() && errno::of_call(|| ffi::ibv_destroy_qp(qp)).is_ok()
    }
}

const UNLIMITED: Maxima = Maxima {
    qp_wr: u32::MAX,
    sge: u32::MAX,
    inline: u32::MAX,
    cqe: u32::MAX,
    comp_vectors: u32::MAX,
    srq_wr: u32::MAX,
    srq_sge: u32::MAX,
};

/// Returns the maximum capacities of a device; `None` if it does not answer.
fn maxima(context: &Context) -> Option<Maxima> {
    context.attrs().ok().map(|attrs| attrs.maxima)
}

/// Returns the name of the device of an open context.
pub(crate) fn name_of(verbs: NonNull<ibv_context>) -> DeviceName {
    // SAFETY: the caller's object holds the context open; its device and the name in it do not change. The name is a
    // string of C.
    unsafe {
        let name = ffi::ibv_get_device_name((*verbs.as_ptr()).device);
        DeviceName::new(if name.is_null() { b"" } else { CStr::from_ptr(name).to_bytes() })
    }
}
