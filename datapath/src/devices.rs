//! The traits, once for each device. Methods are called by path, which names the device's own and not the trait's.

use std::ops::{Deref, DerefMut, Range};
use std::os::fd::BorrowedFd;

use cmid_proto::memory::{self, Access, Change, Flag, Policy, Way};
use cmid_proto::{AhAttr, Attaching, Errno, IdKey};

use crate::{Caps, Completion, Cq, DataPath, GRH_LEN, Mr, Pd, Qp, Remote, To, WcStatus};

macro_rules! data_path {
    ($krate:ident, $device:ident) => {
        const _: () = assert!(GRH_LEN == $krate::GRH_LEN);
        const _: () = assert!(WcStatus::SUCCESS.0 == $krate::WcStatus::SUCCESS.0);
        const _: () = assert!(WcStatus::WR_FLUSH_ERR.0 == $krate::WcStatus::WR_FLUSH_ERR.0);
        const _: () = assert!(WcStatus::REM_ACCESS_ERR.0 == $krate::WcStatus::REM_ACCESS_ERR.0);

        impl DataPath for $krate::$device {
            type Pd = $krate::Pd;
            type Mr = $krate::Mr;
            type Cq = $krate::Cq;
            type Completion = $krate::Completion;
            type Qp = $krate::Qp;
            type Ah = $krate::Ah;

            fn alloc_pd(&mut self, id: IdKey) -> Result<Self::Pd, Errno> {
                $krate::$device::alloc_pd(self, id)
            }
            fn create_cq(&mut self, id: IdKey, depth: u32) -> Result<Self::Cq, Errno> {
                $krate::$device::create_cq(self, id, depth)
            }
            fn create_qp(
                &mut self,
                attaching: Attaching<'_>,
                pd: &Self::Pd,
                send_cq: &Self::Cq,
                recv_cq: &Self::Cq,
                caps: Caps,
            ) -> Result<Self::Qp, Errno> {
                let Caps { max_send_wr, max_recv_wr } = caps;
                let caps = $krate::Caps { max_send_wr, max_recv_wr, ..$krate::Caps::default() };
                $krate::$device::create_qp(self, attaching, pd, send_cq, recv_cq, caps)
            }
            fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno> {
                $krate::$device::destroy_qp(self, id)
            }
        }

        impl Pd for $krate::Pd {
            type Mr = $krate::Mr;
            type Ah = $krate::Ah;
            type Completion = $krate::Completion;

            fn register(&self, buffer: Vec<u8>, access: Access) -> Result<Self::Mr, Errno> {
                $krate::Pd::register(self, buffer, access).map_err(|(_, error)| error.errno())
            }
            fn create_ah(&self, path: &AhAttr) -> Result<Self::Ah, Errno> {
                $krate::Pd::create_ah(self, path)
            }
            fn create_ah_from(
                &self,
                completion: &Self::Completion,
                mr: &Self::Mr,
                offset: usize,
            ) -> Result<Self::Ah, Errno> {
                $krate::Pd::create_ah_from(self, completion, mr, offset)
            }
        }

        impl Mr for $krate::Mr {
            type Pd = $krate::Pd;

            fn addr(&self) -> u64 {
                $krate::Mr::addr(self)
            }
            fn len(&self) -> usize {
                $krate::Mr::len(self)
            }
            fn rkey(&self) -> u32 {
                $krate::Mr::rkey(self)
            }
            fn access(&self) -> Option<Access> {
                $krate::Mr::access(self)
            }
            fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
                $krate::Mr::read(self, offset, into)
            }
            fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), Errno> {
                $krate::Mr::write(self, offset, from)
            }
            fn load_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno> {
                $krate::Mr::load_acquire(self, offset)
            }
            fn store_release<F: Flag>(&mut self, offset: usize, number: F) -> Result<(), Errno> {
                $krate::Mr::store_release(self, offset, number)
            }
            fn slice(&mut self) -> Result<impl Deref<Target = [u8]>, Errno> {
                $krate::Mr::slice(self)
            }
            fn slice_mut(&mut self) -> Result<impl DerefMut<Target = [u8]>, Errno> {
                $krate::Mr::slice_mut(self)
            }
            fn word(&self, offset: usize) -> Option<u64> {
                $krate::Mr::view(self).word(offset)
            }
            fn reregister(&mut self, change: Change<Self::Pd, Vec<u8>>, policy: Policy) -> Result<Way, memory::Error> {
                let change = Change { buffer: change.buffer.map(Into::into), pd: change.pd, access: change.access };
                $krate::Mr::reregister(self, change, policy).result
            }
        }

        impl Cq for $krate::Cq {
            type Completion = $krate::Completion;

            fn poll(&mut self) -> Result<Option<Self::Completion>, Errno> {
                let mut one = [$krate::Completion::default()];
                let polled = $krate::Cq::poll(self, &mut one)?;
                let [completion] = one;
                Ok((polled == 1).then_some(completion))
            }
            fn arm(&self) -> Result<(), Errno> {
                $krate::Cq::arm(self)
            }
            fn fd(&self) -> BorrowedFd<'_> {
                $krate::Cq::fd(self)
            }
            fn take_notifications(&self) -> Result<u32, Errno> {
                $krate::Cq::take_notifications(self)
            }
        }

        impl Completion for $krate::Completion {
            fn wr_id(&self) -> u64 {
                self.wr_id
            }
            fn status(&self) -> WcStatus {
                WcStatus(self.status.0)
            }
            fn opcode(&self) -> u32 {
                self.opcode
            }
            fn byte_len(&self) -> u32 {
                self.byte_len
            }
            fn src_qp(&self) -> u32 {
                self.src_qp
            }
        }

        impl Qp for $krate::Qp {
            type Mr = $krate::Mr;
            type Ah = $krate::Ah;

            fn num(&self) -> u32 {
                $krate::Qp::num(self)
            }
            fn post_send(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno> {
                $krate::Qp::post_send(self, wr_id, mr, range)
            }
            fn post_send_to(
                &mut self,
                wr_id: u64,
                mr: &Self::Mr,
                range: Range<usize>,
                to: To<'_, Self::Ah>,
            ) -> Result<(), Errno> {
                let to = $krate::To { ah: to.ah, qp_num: to.qp_num, qkey: to.qkey };
                $krate::Qp::post_send_to(self, wr_id, mr, range, to)
            }
            fn post_recv(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno> {
                $krate::Qp::post_recv(self, wr_id, mr, range)
            }
            fn post_read(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>, from: Remote) -> Result<(), Errno> {
                let from = $krate::Remote { addr: from.addr, rkey: from.rkey };
                $krate::Qp::post_read(self, wr_id, mr, range, from)
            }
            fn post_write(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>, to: Remote) -> Result<(), Errno> {
                let to = $krate::Remote { addr: to.addr, rkey: to.rkey };
                $krate::Qp::post_write(self, wr_id, mr, range, to)
            }
        }
    };
}

data_path!(cmid_sim, SimDevice);
#[cfg(feature = "verbs")]
const _: () = assert!(crate::RECV == cmid_verbs::Completion::RECV);
#[cfg(feature = "verbs")]
data_path!(cmid_verbs, Verbs);
