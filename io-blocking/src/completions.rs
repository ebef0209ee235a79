//! Completions of a connection, with a wait in poll(2).

use std::time::Duration;

use cmid_proto::datapath::{Completion, CompletionQueue};
use cmid_proto::{Observer, Pollable, State};

use crate::connection::Connection;
use crate::error::Error;
use crate::wait::Ready;

impl<D: Pollable, O: Observer> Connection<D, O> {
    /// Waits for completions of a CQ with a completion channel of its own, successful or not. Puts them into `into`, oldest
    /// first, and returns their number. Returns 0 only if the connection has ended and the CQ is empty: after a disconnect of
    /// the peer ([`State::PeerClosed`]), call [`disconnect`](Connection::disconnect), which flushes the posted work requests,
    /// and [`drain`](Connection::drain). Drops the events of the connection; [`state`](Connection::state) tells how it has
    /// ended. `into` must not be empty.
    ///
    /// A failed completion means that the QP has failed; the connection has not ended then, and the peer does not know.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if `timeout`, which may be zero, passes first. [`Error::Wait`] with the errno of the CQ, `EINVAL`
    /// for one on a shared channel; otherwise as [`next_event`](Connection::next_event). No completion is lost.
    #[doc(alias("rdma_get_send_comp", "rdma_get_recv_comp"))]
    pub fn next_completions<C: CompletionQueue>(
        &mut self,
        cq: &mut C,
        into: &mut [Completion],
        timeout: Duration,
    ) -> Result<usize, Error> {
        let end = self.parts().1.drive().within(timeout);
        loop {
            let polled = cq.poll_or_arm(into).map_err(Error::Wait)?;
            if polled > 0 || self.state() != State::Connected {
                return Ok(polled);
            }
            let (id, driver) = self.parts();
            match driver.ready(id, Some(cq.fd()), end, "next_completions")? {
                Ready::Descriptor | Ready::Event(_) => {}
            }
        }
    }
}
