//! Posting lists of work requests by ibv_post_send(3) and ibv_post_recv(3). The rules are those of post.rs.

use core::ptr;

use cmid_proto::Errno;
use cmid_proto::datapath::{PostError, SendWr, Sge};

use crate::data::post::Filed;
use crate::data::ranges::{pinned_key, pinned_keys, target};
use crate::data::request::send_request;
use crate::data::staging::Staging;
use crate::data::{Ah, Mr, Qp};
use crate::errno;
use crate::ffi::ibv_send_wr;

impl Qp {
    /// Posts a batch of receives.
    #[inline(always)]
    pub(super) fn post_recv_list<'a, L, I>(&mut self, requests: I) -> Result<usize, PostError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Mr>]>,
    {
        let caps = *self.inner.requested();
        // Lost if a request is refused: the next batch allocates again.
        let mut staging = self.recv_staging.take().unwrap_or_else(|| Staging::new(caps.max_recv_wr, caps.max_recv_sge));
        let (pd, mut filing, mut list) = (self.pd, self.recv.batch(), staging.begin());
        for (wr_id, sges) in requests {
            match sges.as_ref() {
                [sge] => {
                    let sge = target(pd, sge)?;
                    let Some(token) = filing.file_one(wr_id, pinned_key(&sge, false)) else {
                        return Err(self.recv_refusal().into());
                    };
                    let request = list.add_one(sge)?;
                    (request.wr_id, request.num_sge) = (token, i32::from(sge.length != 0));
                }
                sges => {
                    let sges = self.ranges(sges, true, caps.max_recv_sge)?;
                    let keys = pinned_keys(&sges, false);
                    let token = filing.file(wr_id, &keys).ok_or_else(|| self.recv_refusal())?;
                    let request = list.add(&sges)?;
                    (request.wr_id, request.num_sge) = (token, sges.len() as i32);
                }
            }
        }
        let len = list.len();
        let first = staging.end(len);
        if first.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let mut bad = ptr::null_mut();
        // SAFETY: as in `post_recv`, for each request of the list. The list and the ranges are in `staging`, which does
        // not change during the call.
        let posted = unsafe { (self.inner.post_recv)(self.inner.as_ptr(), first, &raw mut bad) };
        let (posted, result) = match errno::of_ibv(posted) {
            Ok(()) => (len, Ok(())),
            Err(errno) => (staging.before(bad), Err(errno)),
        };
        self.recv_staging = Some(staging);
        self.recv.advance_by(posted as u32);
        result.map(|()| posted).map_err(|errno| PostError { posted, errno })
    }

    /// Posts a batch by ibv_post_send(3).
    pub(super) fn post_list<'a, L, I>(&mut self, requests: I) -> Result<usize, PostError>
    where
        I: IntoIterator<Item = SendWr<'a, L, Ah>>,
        L: AsRef<[Sge<'a, Mr>]>,
        Ah: 'a,
    {
        let caps = *self.inner.requested();
        // Lost if a request is refused: the next batch allocates again.
        let mut staging = self.send_staging.take().unwrap_or_else(|| Staging::new(caps.max_send_wr, caps.max_send_sge));
        let (mut filing, mut list) = (self.send.batch(), staging.begin());
        for SendWr { wr_id, op, sges, flags } in requests {
            let Filed { token, sges, is_inline } = self.file_ranges(&mut filing, wr_id, &op, sges.as_ref())?;
            let request = list.add(&sges)?;
            let (sg_list, next, num_sge) = (request.sg_list, request.next, sges.len() as i32);
            *request = ibv_send_wr { sg_list, next, num_sge, ..send_request(token, op, flags, is_inline) };
        }
        let len = list.len();
        let first = staging.end(len);
        if first.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let mut bad = ptr::null_mut();
        // SAFETY: as in `post_filed`, for each request of the list. The list and the ranges are in `staging`, which
        // does not change during the call.
        let posted = unsafe { (self.inner.post_send)(self.inner.as_ptr(), first, &raw mut bad) };
        let (posted, result) = match errno::of_ibv(posted) {
            Ok(()) => (len, Ok(())),
            Err(errno) => (staging.before(bad), Err(errno)),
        };
        self.send_staging = Some(staging);
        self.send.advance_by(posted as u32);
        result.map(|()| posted).map_err(|errno| PostError { posted, errno })
    }
}
