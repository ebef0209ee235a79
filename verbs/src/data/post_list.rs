//! Posting lists of work requests by ibv_post_send(3) and ibv_post_recv(3). The rules are those of post.rs.

use core::{ptr, slice};

use cmid_proto::datapath::{PostReason, SendFlags, SendWr};

use crate::accounting::kind::Kind;
use crate::data::Ah;
use crate::data::post::Filed;
use crate::data::poster::Poster;
use crate::data::ranges::{Keeper, Named, count, pinned_key, pinned_keys};
use crate::data::request::send_request;
use crate::data::staging::{Staging, Stopped};
use crate::ffi::ibv_send_wr;

impl Poster {
    /// Posts a batch of receives.
    pub(super) fn post_recv_list<R: Named, L>(
        &mut self,
        requests: impl Iterator<Item = (u64, L)>,
        keeper: &mut impl Keeper<L, R>,
    ) -> Result<usize, Stopped> {
        self.open_recv();
        let caps = *self.inner.requested();
        // Lost if a request is refused: the next batch allocates again.
        let mut staging = self.recv_staging.take().unwrap_or_else(|| Staging::new(caps.max_recv_wr, caps.max_recv_sge));
        let (mut filing, mut list) = (self.recv.batch(), staging.begin());
        for (wr_id, sges) in requests {
            match keeper.keep(&filing, wr_id, SendFlags::SIGNALED, sges)? {
                [sge] => {
                    let sge = self.recv_range(sge)?;
                    let Some(token) = filing.file_one(wr_id, pinned_key::<R>(&sge, false), Kind::RECEIVE) else {
                        return Err(self.recv_refusal().into());
                    };
                    let request = list.add_one(sge)?;
                    (request.wr_id, request.num_sge) = (token, count(slice::from_ref(&sge), self.is_iwarp));
                }
                sges => {
                    let sges = self.recv_ranges(sges)?;
                    let keys = pinned_keys::<R>(&sges, false);
                    let token = filing.file(wr_id, &keys, Kind::RECEIVE).ok_or_else(|| self.recv_refusal())?;
                    let request = list.add(&sges)?;
                    (request.wr_id, request.num_sge) = (token, count(&sges, self.is_iwarp));
                }
            }
        }
        let len = list.len();
        let first = staging.end(len);
        if first.is_null() {
            return Err(PostReason::EmptyBatch.into());
        }
        self.recv.advance_by(len as u32);
        let mut bad = ptr::null_mut();
        // SAFETY: as in `post_recv`, for each request of the list. The list and the ranges are in `staging`, which does
        // not change during the call.
        let returned = unsafe { (self.inner.post_recv)(self.inner.as_ptr(), first, &raw mut bad) };
        let result = staging.posted(returned, bad);
        self.recv_staging = Some(staging);
        result.or_else(|stopped| self.end_recvs(len, stopped))
    }

    /// Posts a batch by ibv_post_send(3).
    pub(super) fn post_list<'a, R, L>(
        &mut self,
        requests: impl Iterator<Item = SendWr<'a, L, Ah>>,
        keeper: &mut impl Keeper<L, R>,
    ) -> Result<usize, Stopped>
    where
        R: Named,
        Ah: 'a,
    {
        let caps = *self.inner.requested();
        // Lost if a request is refused: the next batch allocates again.
        let mut staging = self.send_staging.take().unwrap_or_else(|| Staging::new(caps.max_send_wr, caps.max_send_sge));
        let (mut filing, mut list) = (self.send.batch(), staging.begin());
        for SendWr { wr_id, op, sges, flags } in requests {
            let named = keeper.keep(&filing, wr_id, flags, sges)?;
            let Filed { token, sges, is_inline } = self.file_ranges(&mut filing, wr_id, &op, flags, named)?;
            let request = list.add(&sges)?;
            let num_sge = count(&sges, false);
            let (sg_list, next, flags) = (request.sg_list, request.next, self.flags(&op, flags));
            *request = ibv_send_wr { sg_list, next, num_sge, ..send_request(token, op, flags, is_inline) };
        }
        let len = list.len();
        let first = staging.end(len);
        if first.is_null() {
            return Err(PostReason::EmptyBatch.into());
        }
        self.send.advance_by(len as u32);
        let mut bad = ptr::null_mut();
        // SAFETY: as in `post_filed`, for each request of the list. The list and the ranges are in `staging`, which
        // does not change during the call.
        let returned = unsafe { (self.inner.post_send)(self.inner.as_ptr(), first, &raw mut bad) };
        let result = staging.posted(returned, bad);
        self.send_staging = Some(staging);
        result.or_else(|stopped| self.end_sends(len, stopped))
    }
}
