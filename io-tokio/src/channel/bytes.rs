//! A channel as a stream of bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::slice;
use std::task::{Context, Poll, ready};

use cmid_proto::Observer;
use cmid_proto::datapath::DataPath;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wakers::Half;
use super::{Channel, Message};

/// The slices of a vectored write that go into one message.
const SLICES: usize = 64;

/// A channel as a stream of bytes, for what runs on TCP: HTTP, gRPC, codecs. Both sides are one. Its messages are pieces of
/// the stream, without a meaning of their own.
///
/// Each write is sent at once, as with `TCP_NODELAY`. A shutdown is [`Channel::finish`]: the peer then reads the end. A
/// peer that goes without it is `UnexpectedEof`.
///
/// Its turns are made as those of a [`Channel`], also by a flush, which is always ready: after it the task is woken when the
/// next turn is due. So a connection of hyper stays alive while nobody reads a body, or a handler takes its time. A program
/// that uses a stream itself, such as an upgraded one, keeps a read among what it awaits.
///
/// ```no_run
/// # use cmid_tokio::{ByteStream, Channel, Options, proto::{datapath::DataPath, messages::MessagesConfig}};
/// # async fn example(device: impl DataPath) -> std::io::Result<()> {
/// use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
/// let peer = "10.0.0.2:7471".parse().expect("an address");
/// let channel = Channel::connect(device, peer, MessagesConfig::default(), &Options::default()).await?;
/// let mut stream = ByteStream::new(channel);
/// stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
/// stream.read_to_end(&mut Vec::new()).await?;
/// # Ok(())
/// # }
/// ```
///
/// A future of `AsyncReadExt::read` or `AsyncWriteExt::write` that is dropped before it was ready has read or written
/// nothing.
#[derive(Debug)]
pub struct ByteStream<D: DataPath, O: Observer = ()> {
    channel: Channel<D, O>,
    /// A message that is not read to its end.
    rest: Option<Message<D::Piece>>,
}

impl<D: DataPath, O: Observer> ByteStream<D, O> {
    /// Creates a stream of a channel. The next byte is the first one of its next message.
    #[must_use]
    pub fn new(channel: Channel<D, O>) -> Self {
        ByteStream { channel, rest: None }
    }

    /// Returns the channel. Messages that it sends are pieces of the stream.
    pub fn channel(&mut self) -> &mut Channel<D, O> {
        &mut self.channel
    }
}

impl<D: DataPath, O: Observer> AsyncRead for ByteStream<D, O> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut message = match self.rest.take() {
            Some(rest) => rest,
            None => loop {
                match ready!(self.channel.poll_recv(context))? {
                    // It would be the end.
                    Some(empty) if empty.is_empty() => {}
                    Some(message) => break message,
                    None => return Poll::Ready(Ok(())),
                }
            },
        };
        let count = message.len().min(into.remaining());
        into.put_slice(&message[..count]);
        message.advance(count);
        self.rest = (!message.is_empty()).then_some(message);
        Poll::Ready(Ok(()))
    }
}

impl<D: DataPath, O: Observer> AsyncWrite for ByteStream<D, O> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, slice::from_ref(&IoSlice::new(bytes)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (mut slices, mut count, mut len) = ([&[][..]; SLICES], 0, 0);
        for slice in bytes.iter().filter(|slice| !slice.is_empty()) {
            let room = self.channel.message_max() - len;
            if room == 0 || count == SLICES {
                break;
            }
            slices[count] = &slice[..slice.len().min(room)];
            len += slices[count].len();
            count += 1;
        }
        if len == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(self.channel.poll_room(false, context))?;
        Poll::Ready(self.channel.send_now(&slices[..count]).map(|()| len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Ready at once. A service of HTTP/1 that waits for the reader of a body polls nothing else.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // If it is pending, the task is woken for the next flush.
        let _ = self.channel.poll_turns(Half::Send, context, |_| None::<()>);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.channel.poll_finish(context)
    }
}

/// The addresses of both sides: what `Request::remote_addr` of tonic returns.
#[cfg(feature = "tonic")]
impl<D: DataPath, O: Observer> tonic::transport::server::Connected for ByteStream<D, O> {
    type ConnectInfo = tonic::transport::server::TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        let connection = &self.channel.connection;
        let (local_addr, remote_addr) = (connection.local_addr().ok(), connection.peer_addr().ok());
        tonic::transport::server::TcpConnectInfo { local_addr, remote_addr }
    }
}
