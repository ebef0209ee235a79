//! Programs that are futures, polled by the world.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use cmid_proto::datapath::{Completion, CompletionQueue};
use cmid_proto::{ChannelKey, Drive, Errno, Event, Observer, Poller, Time};

use crate::fabric::device::SimDevice;
use crate::worlds::program::{Node, Program, Turn, turn};

/// A program that is a future, such as an `async` block: it is done when the future is ready. It may await the methods of its
/// [`Node`], and futures of any crate that need no runtime, such as channels and joins.
pub struct Task {
    node: Node,
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<Woken>,
}

/// Whether the future was woken by another one.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Task {
    /// Makes a program of a future.
    #[must_use]
    pub fn new(node: &Node, future: impl Future<Output = ()> + 'static) -> Self {
        Task { node: node.clone(), future: Box::pin(future), woken: Arc::default() }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Program for Task {
    fn turn(&mut self, _now: Time) -> Turn {
        // Whoever waits for a time says so again in each turn.
        self.node.alarm.set(None);
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => Turn::Done,
            Poll::Pending if self.woken.0.swap(false, Ordering::Relaxed) => Turn::Again,
            Poll::Pending => Turn::Wait(self.node.alarm.get()),
        }
    }
}

/// For the future of a [`Task`]; elsewhere they wait for nothing.
impl Node {
    /// Plans a turn for this time.
    fn turn_at(&self, due: Option<Time>) {
        self.alarm.set(self.alarm.get().into_iter().chain(due).min());
    }

    /// Waits until this time of the host's clock.
    pub async fn sleep_until(&self, due: Time) {
        poll_fn(|_| {
            if due <= self.now() {
                return Poll::Ready(());
            }
            self.turn_at(Some(due));
            Poll::Pending
        })
        .await;
    }

    /// Waits for this time.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now().after(span)).await;
    }

    /// Waits for a future, but not longer than this time; then the result is `None`, and the future is dropped.
    pub async fn within<T>(&self, span: Duration, future: impl Future<Output = T>) -> Option<T> {
        let (end, mut future) = (self.now().after(span), pin!(future));
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending if end <= self.now() => Poll::Ready(None),
            Poll::Pending => {
                self.turn_at(Some(end));
                Poll::Pending
            }
        })
        .await
    }

    /// Waits for the next event of a channel, and makes the turns of the drive.
    pub async fn next_event<P: Poller<SimDevice>, O: Observer>(
        &self,
        drive: &mut Drive<SimDevice, P, O>,
        channel: ChannelKey,
    ) -> Event {
        poll_fn(|_| {
            turn(drive, self.now());
            if let Some(event) = drive.next_event(channel) {
                return Poll::Ready(event);
            }
            self.turn_at(drive.next_timeout());
            Poll::Pending
        })
        .await
    }

    /// Waits for the next completion of a CQ.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll_one`].
    pub async fn next_completion(&self, cq: &mut impl CompletionQueue) -> Result<Completion, Errno> {
        poll_fn(|_| match cq.poll_one() {
            Ok(Some(completion)) => Poll::Ready(Ok(completion)),
            Ok(None) => Poll::Pending,
            Err(errno) => Poll::Ready(Err(errno)),
        })
        .await
    }
}
