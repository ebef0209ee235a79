//! A channel as a stream and a sink.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use cmid_proto::Observer;
use cmid_proto::datapath::DataPath;
use futures_core::Stream;
use futures_sink::Sink;

use super::{Channel, Message};

/// As [`Channel::recv`]. Ends after an error.
impl<D: DataPath, O: Observer> Stream for Channel<D, O> {
    type Item = io::Result<Message<D::Piece>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_told {
            return Poll::Ready(None);
        }
        let received = ready!(self.poll_recv(context));
        self.is_told = received.is_err();
        Poll::Ready(received.transpose())
    }
}

/// As [`Channel::send`]; its close is [`Channel::finish`]. A flush waits until all messages are sent.
impl<D: DataPath, O: Observer, T: AsRef<[u8]>> Sink<T> for Channel<D, O> {
    type Error = io::Error;

    fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_room(false, context)
    }

    fn start_send(mut self: Pin<&mut Self>, message: T) -> io::Result<()> {
        match self.send_now(&[message.as_ref()]) {
            // A poll of the other half has taken the credit, for a packet without a message.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.queued.is_none() => {
                self.queued = Some(message.as_ref().to_vec());
                Ok(())
            }
            sent => sent,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_finish(context)
    }
}
