//! Mistakes with librdmacm that a sanitizer must report. The script `sanitize` makes each of them and fails if it is
//! not reported. This shows that the instrumentation works and no option has disabled it.
//!
//! The SAFETY comments of this crate rule out each of these mistakes. `faults none` makes the same calls without a
//! mistake. It needs a device with the addresses 10.99.0.1 and 10.99.0.2.
#![expect(unsafe_code, reason = "it calls C")]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod c;

use std::hint::black_box;
use std::process::ExitCode;
use std::{mem, ptr, thread};

use c::{Channel, address, check};
use rdma_sys::{
    ibv_alloc_pd, ibv_dealloc_pd, ibv_destroy_qp, ibv_qp_init_attr, ibv_qp_type, rdma_ack_cm_event, rdma_bind_addr,
    rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_conn_param, rdma_connect, rdma_create_qp, rdma_destroy_id,
    rdma_destroy_qp, rdma_disconnect, rdma_get_cm_event, rdma_listen, rdma_reject, rdma_resolve_addr,
    rdma_resolve_route,
};

const CLIENT: [u8; 4] = [10, 99, 0, 1];
const SERVER: [u8; 4] = [10, 99, 0, 2];
const PORT: u16 = 20_900;
const HELLO: &[u8; 5] = b"hello";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Private data is read after its event was acked, which frees it.
    DataAfterAck,
    /// More private data is read than an event can have.
    DataPastEnd,
    /// An event is acked twice.
    AckedTwice,
    /// An event is neither acked nor kept.
    ForgottenEvent,
    /// A protection domain is neither deallocated nor kept.
    ForgottenPd,
    /// Private data is copied to a buffer that is too short.
    ShortPlace,
    /// A field of an id is read after the id was destroyed.
    IdAfterDestroy,
    /// A QP is destroyed while an id still points at it. librdmacm follows the pointer.
    QpUnderId,
}

const FAULTS: [(&str, Fault); 9] = [
    ("none", Fault::None),
    ("data-after-ack", Fault::DataAfterAck),
    ("data-past-end", Fault::DataPastEnd),
    ("acked-twice", Fault::AckedTwice),
    ("forgotten-event", Fault::ForgottenEvent),
    ("forgotten-pd", Fault::ForgottenPd),
    ("short-place", Fault::ShortPlace),
    ("id-after-destroy", Fault::IdAfterDestroy),
    ("qp-under-id", Fault::QpUnderId),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let Some((name, fault)) = FAULTS.into_iter().find(|(name, _)| *name == wanted) else {
        eprintln!("one of: {}", FAULTS.map(|(name, _)| name).join(", "));
        return ExitCode::from(2);
    };
    // On a thread with a stack that is gone at the search for leaks: a pointer on it would count as a reference.
    thread::spawn(move || commit(fault)).join().expect("the calls go as they should");
    println!("{name}: nothing has stopped it");
    ExitCode::SUCCESS
}

fn commit(fault: Fault) {
    let scene = Scene::with_a_request();
    let (mut copy, mut short) = ([0; 1024], [0; HELLO.len() - 1]);
    // SAFETY: the event was reported and is acked once, after its private data of this length was read, except for
    // the faults. The copy has room for it, and the ids are alive and destroyed once, in `end`.
    unsafe {
        let data = (*scene.request).param.conn.private_data.cast::<u8>();
        let len = if fault == Fault::DataPastEnd { copy.len() } else { HELLO.len() };
        ptr::copy_nonoverlapping(data, copy.as_mut_ptr(), len);
        assert_eq!(copy[..HELLO.len()], *HELLO);
        if fault == Fault::ShortPlace {
            ptr::copy_nonoverlapping(data, short.as_mut_ptr(), len);
        }
        if fault == Fault::ForgottenEvent {
            // Destroying its listener would now wait for ever.
            return;
        }
        check("rdma_ack_cm_event", rdma_ack_cm_event(scene.request));
        if fault == Fault::AckedTwice {
            rdma_ack_cm_event(scene.request);
        }
        if fault == Fault::DataAfterAck {
            ptr::copy_nonoverlapping(data, copy.as_mut_ptr(), len);
        }
        let pd = ibv_alloc_pd((*scene.client).verbs);
        assert!(!pd.is_null(), "ibv_alloc_pd: {}", std::io::Error::last_os_error());
        if fault != Fault::ForgottenPd {
            check("ibv_dealloc_pd", ibv_dealloc_pd(pd));
        }
        let client = scene.client;
        queue_pair(fault, client);
        scene.end();
        if fault == Fault::IdAfterDestroy {
            black_box((*client).port_num);
        }
    }
    black_box((copy, short));
}

/// # Safety
/// The id is alive, and has a device and no QP.
unsafe fn queue_pair(fault: Fault, id: *mut rdma_cm_id) {
    // SAFETY: zeros are a valid value: integers and null pointers. It requests a minimal QP, with CQs of librdmacm's.
    let mut attr: ibv_qp_init_attr = unsafe { mem::zeroed() };
    attr.qp_type = ibv_qp_type::IBV_QPT_RC;
    (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (1, 1);
    // SAFETY: as the caller promises, and librdmacm has a PD of its own. The QP is destroyed once, and removed from
    // the id, except for the fault.
    unsafe {
        check("rdma_create_qp", rdma_create_qp(id, ptr::null_mut(), &raw mut attr));
        if fault == Fault::QpUnderId {
            check("ibv_destroy_qp", ibv_destroy_qp((*id).qp));
            rdma_disconnect(id);
        }
        rdma_destroy_qp(id);
    }
}

/// A client that has sent a request with private data, and a listener that has received it.
struct Scene {
    client: *mut rdma_cm_id,
    listener: *mut rdma_cm_id,
    /// CONNECT_REQUEST, not yet acked.
    request: *mut rdma_cm_event,
    child: *mut rdma_cm_id,
    // Closed after the ids were destroyed.
    here: Channel,
    _there: Channel,
}

impl Scene {
    fn with_a_request() -> Self {
        let (here, there) = (Channel::open(), Channel::open());
        let (client, listener) = (here.id(), there.id());
        let (mut src, mut dst) = (address(CLIENT, 0), address(SERVER, PORT));
        // SAFETY: zeros are a value of it: integers and a null pointer.
        let mut param: rdma_conn_param = unsafe { mem::zeroed() };
        (param.private_data, param.private_data_len) = (HELLO.as_ptr().cast(), HELLO.len() as u8);
        // SAFETY: the ids and their channels are alive. Addresses, parameters and private data are read during the
        // calls. The client has a device when its address is resolved. The request is not acked yet.
        unsafe {
            check("rdma_bind_addr", rdma_bind_addr(listener, (&raw mut dst).cast()));
            check("rdma_listen", rdma_listen(listener, 1));
            let (src, dst) = ((&raw mut src).cast(), (&raw mut dst).cast());
            check("rdma_resolve_addr", rdma_resolve_addr(client, src, dst, 2_000));
            here.ack(rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED);
            check("rdma_resolve_route", rdma_resolve_route(client, 2_000));
            here.ack(rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED);
            check("rdma_connect", rdma_connect(client, &raw mut param));
            let request = there.event(rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
            Scene { client, listener, request, child: (*request).id, here, _there: there }
        }
    }

    /// # Safety
    /// The request was acked.
    unsafe fn end(self) {
        // SAFETY: the ids are alive and destroyed once, and all their events were acked.
        unsafe {
            check("rdma_reject", rdma_reject(self.child, ptr::null(), 0));
            check("rdma_destroy_id", rdma_destroy_id(self.child));
            self.here.ack(rdma_cm_event_type::RDMA_CM_EVENT_REJECTED);
            check("rdma_destroy_id", rdma_destroy_id(self.client));
            check("rdma_destroy_id", rdma_destroy_id(self.listener));
        }
    }
}

impl Channel {
    /// The next event, which must be this one.
    fn event(&self, wanted: u32) -> *mut rdma_cm_event {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is open, there is a place for the result, and what it points at is not acked yet.
        unsafe {
            check("rdma_get_cm_event", rdma_get_cm_event(self.0, &raw mut event));
            assert_eq!(((*event).event, (*event).status.min(0)), (wanted, 0));
        }
        event
    }

    fn ack(&self, wanted: u32) {
        // SAFETY: the event was reported just now, and is not used again.
        check("rdma_ack_cm_event", unsafe { rdma_ack_cm_event(self.event(wanted)) });
    }
}
