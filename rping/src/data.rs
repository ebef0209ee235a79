//! The data path that a ping needs, once for both devices: their types have the same methods.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use cmid_proto::{Errno, IdKey, Pollable};

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) wr_id: u64,
    /// 0, or the number of `enum ibv_wc_status`.
    pub(crate) status: u32,
    pub(crate) byte_len: u32,
}

/// A peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

/// Who may reach a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// This side's own work requests.
    Local,
    /// The peer's reads and writes too.
    Peer,
}

/// A device with a data path.
pub(crate) trait Data: Pollable + Send + Sized + 'static {
    type Pd;
    type Mr;
    type Cq;
    type Qp;

    fn alloc_pd(&mut self, id: IdKey) -> Result<Self::Pd, Errno>;
    fn create_cq(&mut self, id: IdKey, depth: u32) -> Result<Self::Cq, Errno>;
    fn create_qp(&mut self, id: IdKey, pd: &Self::Pd, cq: &Self::Cq, depth: u32) -> Result<Self::Qp, Errno>;
    fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno>;
    fn register(pd: &Self::Pd, len: usize, reach: Reach) -> Result<Self::Mr, Errno>;
    fn here(mr: &Self::Mr) -> Remote;
    fn read(mr: &Self::Mr, offset: usize, into: &mut [u8]) -> Result<(), Errno>;
    fn write(mr: &mut Self::Mr, offset: usize, from: &[u8]) -> Result<(), Errno>;
    fn post_send(qp: &mut Self::Qp, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno>;
    fn post_recv(qp: &mut Self::Qp, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno>;
    fn post_read(qp: &mut Self::Qp, wr_id: u64, mr: &Self::Mr, range: Range<usize>, from: Remote) -> Result<(), Errno>;
    fn post_write(qp: &mut Self::Qp, wr_id: u64, mr: &Self::Mr, range: Range<usize>, to: Remote) -> Result<(), Errno>;
    fn poll(cq: &mut Self::Cq) -> Result<Option<Done>, Errno>;
    fn arm(cq: &Self::Cq) -> Result<(), Errno>;
    fn cq_fd(cq: &Self::Cq) -> BorrowedFd<'_>;
    fn take_notifications(cq: &Self::Cq) -> Result<(), Errno>;
}

macro_rules! data_of {
    ($krate:ident, $device:ident) => {
        impl Data for $krate::$device {
            type Pd = $krate::Pd;
            type Mr = $krate::Mr;
            type Cq = $krate::Cq;
            type Qp = $krate::Qp;

            fn alloc_pd(&mut self, id: IdKey) -> Result<Self::Pd, Errno> {
                $krate::$device::alloc_pd(self, id)
            }
            fn create_cq(&mut self, id: IdKey, depth: u32) -> Result<Self::Cq, Errno> {
                $krate::$device::create_cq(self, id, depth)
            }
            fn create_qp(&mut self, id: IdKey, pd: &Self::Pd, cq: &Self::Cq, depth: u32) -> Result<Self::Qp, Errno> {
                let caps = $krate::Caps { max_send_wr: depth, max_recv_wr: depth, ..Default::default() };
                $krate::$device::create_qp(self, id, pd, cq, cq, caps)
            }
            fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno> {
                $krate::$device::destroy_qp(self, id)
            }
            fn register(pd: &Self::Pd, len: usize, reach: Reach) -> Result<Self::Mr, Errno> {
                use $krate::Access;
                let access = match reach {
                    Reach::Local => Access::LOCAL_WRITE,
                    Reach::Peer => Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE,
                };
                pd.register(vec![0; len], access).map_err(|(_, error)| error.errno())
            }
            fn here(mr: &Self::Mr) -> Remote {
                Remote { addr: mr.addr(), rkey: mr.rkey() }
            }
            fn read(mr: &Self::Mr, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
                mr.read(offset, into)
            }
            fn write(mr: &mut Self::Mr, offset: usize, from: &[u8]) -> Result<(), Errno> {
                mr.write(offset, from)
            }
            fn post_send(qp: &mut Self::Qp, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno> {
                qp.post_send(wr_id, mr, range)
            }
            fn post_recv(qp: &mut Self::Qp, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno> {
                qp.post_recv(wr_id, mr, range)
            }
            fn post_read(
                qp: &mut Self::Qp,
                wr_id: u64,
                mr: &Self::Mr,
                range: Range<usize>,
                from: Remote,
            ) -> Result<(), Errno> {
                qp.post_read(wr_id, mr, range, $krate::Remote { addr: from.addr, rkey: from.rkey })
            }
            fn post_write(
                qp: &mut Self::Qp,
                wr_id: u64,
                mr: &Self::Mr,
                range: Range<usize>,
                to: Remote,
            ) -> Result<(), Errno> {
                qp.post_write(wr_id, mr, range, $krate::Remote { addr: to.addr, rkey: to.rkey })
            }
            fn poll(cq: &mut Self::Cq) -> Result<Option<Done>, Errno> {
                let mut one = [$krate::Completion::default()];
                let polled = cq.poll(&mut one)?;
                Ok(one.first().filter(|_| polled == 1).map(|done| Done {
                    wr_id: done.wr_id,
                    status: done.status.0,
                    byte_len: done.byte_len,
                }))
            }
            fn arm(cq: &Self::Cq) -> Result<(), Errno> {
                cq.arm()
            }
            fn cq_fd(cq: &Self::Cq) -> BorrowedFd<'_> {
                cq.fd()
            }
            fn take_notifications(cq: &Self::Cq) -> Result<(), Errno> {
                cq.take_notifications().map(drop)
            }
        }
    };
}

data_of!(cmid_sim, SimDevice);
#[cfg(feature = "verbs")]
data_of!(cmid_verbs, Verbs);
