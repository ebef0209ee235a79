//! The data path: objects of libibverbs that cmid does not manage. It replaces cmid's data path and its checks: here
//! the application itself must keep the memory registered while work requests use it.
#![expect(unsafe_code, reason = "it calls C")]

use std::ffi::c_int;
use std::io::{Error, Result};
use std::mem;
use std::ptr::{self, NonNull};
use std::time::Instant;

use cmid_verbs::Nic;
use cmid_verbs::raw::QpAttr;
use rdma_sys::{
    ibv_access_flags, ibv_alloc_pd, ibv_context, ibv_cq, ibv_create_cq, ibv_create_qp, ibv_dealloc_pd, ibv_dereg_mr,
    ibv_destroy_cq, ibv_destroy_qp, ibv_modify_qp, ibv_mr, ibv_pd, ibv_poll_cq, ibv_post_recv, ibv_post_send, ibv_qp,
    ibv_qp_init_attr, ibv_qp_type, ibv_recv_wr, ibv_reg_mr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wc,
    ibv_wc_status, ibv_wr_opcode,
};

use crate::connection::{ForeignQp, LIMIT};

/// Bytes per message.
const LEN: usize = mem::size_of::<u32>();

/// The work requests. At most one of each is under way.
const RECV: u64 = 1;
const SEND: u64 = 2;

/// An object of libibverbs, destroyed on drop.
struct Object<T> {
    object: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
}

impl<T> Object<T> {
    /// Takes ownership of the object that a function of libibverbs has returned.
    ///
    /// # Safety
    /// `object` is null, with an errno, or an object that `destroy` destroys and that nothing else destroys. Everything
    /// that it refers to lives longer.
    unsafe fn new(object: *mut T, destroy: unsafe extern "C" fn(*mut T) -> c_int) -> Result<Self> {
        let object = NonNull::new(object).ok_or_else(Error::last_os_error)?;
        Ok(Object { object, destroy })
    }

    fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: as the caller of `new` promises. An error is ignored, because a drop cannot handle it.
        let _ = unsafe { (self.destroy)(self.as_ptr()) };
    }
}

/// A QP with one buffer to receive and one to send. Fields are dropped in order: the QP before the objects that it
/// refers to, and the device last.
pub(crate) struct Path {
    qp: Object<ibv_qp>,
    mr: Object<ibv_mr>,
    cq: Object<ibv_cq>,
    _pd: Object<ibv_pd>,
    /// The received message, and the one to send.
    memory: Memory,
    /// Keeps the context open.
    _nic: Nic,
    /// Whether the receive has completed and its completion was not taken; then the same for the send.
    received: bool,
    sent: bool,
}

/// Memory that the device accesses. There is no Rust reference to it.
struct Memory(NonNull<[u32; 2]>);

impl Memory {
    fn new() -> Self {
        Memory(NonNull::from(Box::leak(Box::new([0; 2]))))
    }

    /// The address of one of the two messages.
    fn message(&self, number: usize) -> *mut u32 {
        assert!(number < 2);
        // SAFETY: the result is inside of the array.
        unsafe { self.0.as_ptr().cast::<u32>().add(number) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from a box, and the MR and the QP are destroyed.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Path {
    /// Creates all objects on a device.
    pub(crate) fn open(nic: Nic) -> anyhow::Result<Self> {
        // SAFETY: the context is used here and by the objects below. `nic` outlives these objects, because it is a
        // later field of the same value. On an error they are dropped before `nic`, because they are later variables.
        let context: *mut ibv_context = unsafe { nic.raw_context() }.as_ptr().cast();
        let memory = Memory::new();
        // SAFETY: the context is open.
        let pd = unsafe { Object::new(ibv_alloc_pd(context), ibv_dealloc_pd) }?;
        // SAFETY: the context is open; there is no completion channel.
        let cq =
            unsafe { Object::new(ibv_create_cq(context, 4, ptr::null_mut(), ptr::null_mut(), 0), ibv_destroy_cq) }?;
        // SAFETY: the memory lives longer than the MR, and no Rust reference to it exists.
        let mr = unsafe {
            let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as c_int;
            Object::new(ibv_reg_mr(pd.as_ptr(), memory.message(0).cast(), 2 * LEN, access), ibv_dereg_mr)
        }?;
        // SAFETY: all zeros are a valid value of the attributes.
        let mut init: ibv_qp_init_attr = unsafe { mem::zeroed() };
        (init.send_cq, init.recv_cq, init.qp_type) = (cq.as_ptr(), cq.as_ptr(), ibv_qp_type::IBV_QPT_RC);
        (init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge, init.cap.max_recv_sge) = (1, 1, 1, 1);
        // SAFETY: the PD and the CQ are dropped after the QP; the attributes are read during the call.
        let qp = unsafe { Object::new(ibv_create_qp(pd.as_ptr(), &raw mut init), ibv_destroy_qp) }?;
        Ok(Path { qp, mr, cq, _pd: pd, memory, _nic: nic, received: false, sent: false })
    }

    /// Returns the next message of the peer, and posts the receive for the message after it.
    pub(crate) fn receive(&mut self) -> anyhow::Result<u32> {
        while !mem::take(&mut self.received) {
            self.wait()?;
        }
        // SAFETY: the memory lives, and no posted receive lets the device write to it.
        let message = unsafe { self.memory.message(0).read() };
        self.post_recv()?;
        Ok(message)
    }

    /// Sends a message, and waits until the send has completed.
    pub(crate) fn send(&mut self, message: u32) -> anyhow::Result<()> {
        // SAFETY: the memory lives, and no posted send lets the device read it.
        unsafe { self.memory.message(1).write(message) };
        let mut sge = self.sge(1);
        // SAFETY: zeros are a value of the request.
        let mut request: ibv_send_wr = unsafe { mem::zeroed() };
        (request.wr_id, request.sg_list, request.num_sge) = (SEND, &raw mut sge, 1);
        (request.opcode, request.send_flags) = (ibv_wr_opcode::IBV_WR_SEND, ibv_send_flags::IBV_SEND_SIGNALED.0);
        let mut bad = ptr::null_mut();
        // SAFETY: the QP is alive; the request is read during the call. The memory stays registered, and unchanged
        // until the completion.
        check(unsafe { ibv_post_send(self.qp.as_ptr(), &raw mut request, &raw mut bad) })?;
        while !mem::take(&mut self.sent) {
            self.wait()?;
        }
        Ok(())
    }

    fn post_recv(&mut self) -> Result<()> {
        let mut sge = self.sge(0);
        let mut request = ibv_recv_wr { wr_id: RECV, next: ptr::null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: as in `send`.
        check(unsafe { ibv_post_recv(self.qp.as_ptr(), &raw mut request, &raw mut bad) })
    }

    /// The range of one of the two messages.
    fn sge(&self, number: usize) -> ibv_sge {
        // SAFETY: the MR is alive.
        let lkey = unsafe { (*self.mr.as_ptr()).lkey };
        ibv_sge { addr: self.memory.message(number) as u64, length: LEN as u32, lkey }
    }

    /// Polls until a work request completes. Fails after [`LIMIT`].
    fn wait(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            // SAFETY: all zeros are a valid value of a completion.
            let mut done: ibv_wc = unsafe { mem::zeroed() };
            // SAFETY: the CQ is alive, and there is room for one completion.
            match unsafe { ibv_poll_cq(self.cq.as_ptr(), 1, &raw mut done) } {
                0 => anyhow::ensure!(start.elapsed() < LIMIT, "no completion within {LIMIT:?}"),
                1 => {
                    let (wr_id, status) = (done.wr_id, done.status);
                    anyhow::ensure!(
                        status == ibv_wc_status::IBV_WC_SUCCESS,
                        "work request {wr_id} failed with status {status}"
                    );
                    self.received |= wr_id == RECV;
                    self.sent |= wr_id == SEND;
                    return Ok(());
                }
                failed => anyhow::bail!("ibv_poll_cq: {failed}"),
            }
            // The peer may be on this CPU.
            std::thread::yield_now();
        }
    }
}

impl ForeignQp for Path {
    fn num(&self) -> u32 {
        // SAFETY: the QP is alive.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }

    fn modify(&mut self, attr: &mut QpAttr) -> anyhow::Result<()> {
        // SAFETY: the QP is alive; the attributes are of `struct ibv_qp_attr` and read during the call.
        Ok(check(unsafe { ibv_modify_qp(self.qp.as_ptr(), attr.as_mut_ptr().cast(), attr.mask()) })?)
    }

    fn post_first_receives(&mut self) -> anyhow::Result<()> {
        Ok(self.post_recv()?)
    }
}

/// The result of a function that returns an errno.
fn check(returned: c_int) -> Result<()> {
    if returned == 0 { Ok(()) } else { Err(Error::from_raw_os_error(returned)) }
}
