//! Messages that no receive has room for: the peer reads them by RDMA.

use std::io;
use std::sync::Arc;

use cmid_proto::datapath::{Access, DataPath, Remote, SendWr, prelude::*, zeros};
use cmid_proto::messages::HEADER;
use cmid_proto::{Errno, Observer};

use super::turn::not_sent;
use super::{Arrived, Channel, Message, Work};
use crate::clock;

/// A message of the peer that this side reads.
pub(super) struct Reading<M> {
    mr: M,
    /// Whether the read has completed.
    is_read: bool,
}

impl<D: DataPath, O: Observer> Channel<D, O> {
    /// Offers a message. It is copied into memory of its own, which the peer may read until it has taken the message.
    pub(super) fn offer(&mut self, message: &[u8]) -> io::Result<()> {
        let mut bytes = zeros(1, message.len())?;
        bytes.copy_from_slice(message);
        let mr = self.pd.register(bytes, Access::REMOTE_READ)?;
        let packet = self.messages.offer(message.len() as u64, mr.remote(0), clock::now()).map_err(not_sent)?;
        let block = self.sends.take().ok_or(Errno::ENOMEM)?;
        self.offered = Some(mr);
        let (header, place) = packet.split_first_chunk::<HEADER>().ok_or(Errno::EINVAL)?;
        self.post_message(block, *header, &[place])
    }

    /// If the next message is offered: begins to read it, unless the connection has ended, or puts it in the place of its
    /// offer. One is read at a time.
    pub(super) fn read_next(&mut self, has_ended: bool) -> io::Result<()> {
        let Some(&Arrived::Offer { at, len, .. }) = self.arrived.front() else { return Ok(()) };
        let Some(reading) = self.reading.take() else {
            return if has_ended { Ok(()) } else { self.begin_read(at, len) };
        };
        if !reading.is_read {
            self.reading = Some(reading);
            return Ok(());
        }
        // The memory itself is the message. Nobody can write to it any more.
        let returned = reading.mr.deregister()?;
        let bytes = returned.buffer.into_vec().map_err(|_shared| Errno::EIO)?;
        if let Some(Arrived::Offer { block, .. }) = self.arrived.pop_front() {
            let message = Message::large(block, bytes, Arc::clone(&self.wakers));
            self.arrived.push_front(Arrived::Message(message));
        }
        self.messages.take();
        Ok(())
    }

    fn begin_read(&mut self, at: Remote, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        // No side offers an empty one, and there is no registration without memory.
        if !(1..=self.large_max).contains(&len) {
            let error = format!("the peer offers a message of {len} bytes, and 1 to {} are taken", self.large_max);
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        // On iWARP the answer to a read is a write of the peer (`siw_check_mem`).
        let of_peer = if self.is_iwarp { Access::REMOTE_WRITE } else { Access::empty() };
        let mr = self.pd.register(zeros(1, len)?, Access::LOCAL_WRITE | of_peer)?;
        self.qp.post_send(SendWr::read(Work::Read as u64, mr.sge(0..len), at))?;
        self.reading = Some(Reading { mr, is_read: false });
        Ok(())
    }

    /// The read has completed.
    pub(super) fn has_read(&mut self) {
        self.reading.iter_mut().for_each(|reading| reading.is_read = true);
    }

    /// The peer has taken the message that was offered.
    pub(super) fn taken(&mut self) {
        self.offered = None;
    }
}
