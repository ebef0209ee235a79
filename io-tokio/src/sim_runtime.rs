//! A program on tokio in a world of the simulator.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use cmid_proto::Time;
use cmid_sim::{Node, Program, Turn};
use tokio::runtime::{Builder, Runtime};
use tokio::time::advance;

/// A program of a [`World`](cmid_sim::World): a future, and the tasks that it spawns, on a runtime of tokio of its own. It is
/// done when the future is ready. A program for tokio runs unchanged: its connections are those of this crate on the devices of
/// its [`Node`], and its clock is that of its host, which goes on with the world. A crash drops the runtime with all tasks.
///
/// Worlds are reproducible if programs are; see [`World`](cmid_sim::World) for what they may not use, which
/// [`spawn_blocking`](tokio::task::spawn_blocking) and sockets do. `tokio::select!` draws the order of its branches: without
/// `biased` it needs `--cfg tokio_unstable` to draw it from the seed. As elsewhere, the panic of a task is in its `JoinHandle`
/// and nowhere else, and a task that never waits, not even with a time that is due later, ends no turn.
///
/// ```
/// use cmid_tokio::proto::messages::MessagesConfig;
/// use cmid_tokio::sim::{Fault, Node, SimDevice, check};
/// use cmid_tokio::{Channel, Listener, Options, SimRuntime};
/// use std::{io, net::SocketAddr, time::Duration};
///
/// /// Sends each message back.
/// async fn serve(mut listener: Listener<SimDevice>) -> io::Result<()> {
///     loop {
///         let incoming = listener.accept().await?;
///         tokio::spawn(async move {
///             let options = Options { timeout: Duration::from_secs(1), ..Options::default() };
///             let mut channel = Channel::accept(incoming, MessagesConfig::default(), &options).await?;
///             while let Some(message) = channel.recv().await? {
///                 channel.send(&message).await?;
///             }
///             channel.finish().await
///         });
///     }
/// }
///
/// /// Sends a message, and gets it back.
/// async fn ask(device: SimDevice, server: SocketAddr) -> io::Result<()> {
///     let options = Options { timeout: Duration::from_secs(1), ..Options::default() };
///     let mut channel = Channel::connect(device, server, MessagesConfig::default(), &options).await?;
///     channel.send(b"hello").await?;
///     let answer = channel.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
///     assert_eq!(*answer, *b"hello");
///     Ok(())
/// }
///
/// check(0..10, |world| {
///     world.host("server", |node| {
///         let listener = Listener::bind(node.device(), node.addr(7471));
///         SimRuntime::new(node, async { serve(listener.expect("a free port")).await.expect("a listener") })
///     });
///     world.client("client", |node: &Node| {
///         let here = node.clone();
///         SimRuntime::new(node, async move {
///             while ask(here.device(), here.addr_of("server", 7471)).await.is_err() {
///                 tokio::time::sleep(Duration::from_millis(20)).await;
///             }
///         })
///     });
///     world.chaos(2, Duration::from_millis(20), &[Fault::Crash, Fault::PowerLoss, Fault::Loss]);
///     world.run(Duration::from_secs(30));
/// });
/// ```
pub struct SimRuntime {
    // Dropped first, as the tasks are before the runtime.
    future: Pin<Box<dyn Future<Output = ()>>>,
    runtime: Runtime,
    /// Woken when all tasks wait.
    parked: Arc<Parked>,
    start: Time,
    /// The time on tokio's clock.
    now: Time,
}

/// The waker of a turn that waits until all tasks do.
#[derive(Debug, Default)]
struct Parked(Mutex<Option<Waker>>);

impl Parked {
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimRuntime {
    /// Makes a program of a future, with a runtime whose clock begins at the time of the node.
    ///
    /// # Panics
    /// If the process has no descriptors left for the runtime.
    #[must_use]
    pub fn new(node: &Node, future: impl Future<Output = ()> + 'static) -> Self {
        let (parked, now) = (Arc::<Parked>::default(), node.now());
        let runtime = match build(node, Arc::clone(&parked)) {
            Ok(runtime) => runtime,
            Err(error) => panic!("no runtime for a host: {error}"),
        };
        SimRuntime { future: Box::pin(future), runtime, parked, start: now, now }
    }
}

fn build(node: &Node, parked: Arc<Parked>) -> io::Result<Runtime> {
    let mut builder = Builder::new_current_thread();
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&node.random(u64::MAX).to_le_bytes()));
    #[cfg(not(tokio_unstable))]
    let _seed = node.random(u64::MAX);
    let wake = move || {
        if let Some(waker) = parked.waker().take() {
            waker.wake();
        }
    };
    builder.enable_all().start_paused(true).on_thread_park(wake).build()
}

impl Program for SimRuntime {
    fn turn(&mut self, now: Time) -> Turn {
        let SimRuntime { future, runtime, parked, .. } = self;
        let (span, mut waits) = (now.since(self.now), false);
        self.now = self.now.max(now);
        let is_done = runtime.block_on(async {
            // Also takes what the descriptors have.
            advance(span).await;
            poll_fn(|context| {
                if waits && parked.waker().is_none() {
                    return Poll::Ready(false);
                } else if future.as_mut().poll(context).is_ready() {
                    return Poll::Ready(true);
                }
                // It prevents that the clock goes on by itself.
                (*parked.waker(), waits) = (Some(context.waker().clone()), true);
                Poll::Pending
            })
            .await
        });
        if is_done {
            return Turn::Done;
        }
        // Nothing tells when the next timer of the runtime is due. They are due at whole milliseconds.
        let passed = u64::try_from(self.now.since(self.start).as_millis()).unwrap_or(u64::MAX);
        Turn::Wait(Some(self.start.after(Duration::from_millis(passed.saturating_add(1)))))
    }
}

impl fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRuntime").field("now", &self.now).finish_non_exhaustive()
    }
}
