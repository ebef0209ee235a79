//! A program on tokio in a world of the simulator.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use cmid_proto::Time;
use cmid_sim::{Node, Program, Turn};
use tokio::runtime::{Builder, Runtime};
use tokio::time::advance;

/// A program of a [`World`](cmid_sim::World): a future, and the tasks that it spawns, on a runtime of tokio of its own. It is
/// done when the future is ready. A program for tokio runs unchanged: its connections are those of this crate on the devices of
/// its [`Node`], and its clock is that of its host, which goes on with the world. A crash drops the runtime with all tasks.
///
/// Futures and tasks are polled when they are woken. Timers are tokio's, which are due at whole milliseconds from the start
/// of the runtime: it looks for them so often, because tokio tells nobody when the next one is due.
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
///         let incoming = match listener.accept().await {
///             // A request that cannot be taken in.
///             Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
///             incoming => incoming?,
///         };
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
    woken: Arc<Woken>,
    start: Time,
    /// The time on tokio's clock.
    now: Time,
}

/// What wakes a turn: the future, or the end of all work.
#[derive(Debug)]
struct Woken {
    /// Whether the future is to be polled.
    future: AtomicBool,
    /// The turn, while it waits.
    turn: Mutex<Option<Waker>>,
}

impl Woken {
    fn turn(&self) -> MutexGuard<'_, Option<Waker>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_turn(&self) {
        let turn = self.turn().take();
        turn.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.future.store(true, Ordering::Relaxed);
        self.wake_turn();
    }
}

impl SimRuntime {
    /// Makes a program of a future, with a runtime whose clock begins at the time of the node.
    ///
    /// # Panics
    /// If the process has no descriptors left for the runtime.
    #[must_use]
    pub fn new(node: &Node, future: impl Future<Output = ()> + 'static) -> Self {
        let woken = Arc::new(Woken { future: AtomicBool::new(true), turn: Mutex::default() });
        let (all_wait, now) = (Arc::clone(&woken), node.now());
        let runtime = match build(node, move || all_wait.wake_turn()) {
            Ok(runtime) => runtime,
            Err(error) => panic!("no runtime for a host: {error}"),
        };
        SimRuntime { future: Box::pin(future), runtime, woken, start: now, now }
    }
}

fn build(node: &Node, all_wait: impl Fn() + Send + Sync + 'static) -> io::Result<Runtime> {
    let mut builder = Builder::new_current_thread();
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&node.random(u64::MAX).to_le_bytes()));
    #[cfg(not(tokio_unstable))]
    let _seed = node.random(u64::MAX);
    builder.enable_all().start_paused(true).on_thread_park(all_wait).build()
}

impl Program for SimRuntime {
    fn turn(&mut self, now: Time) -> Turn {
        let SimRuntime { future, runtime, woken, .. } = self;
        let (span, waker, mut waits) = (now.since(self.now), Waker::from(Arc::clone(woken)), false);
        self.now = self.now.max(now);
        let is_done = runtime.block_on(async {
            // Also takes what the descriptors have.
            advance(span).await;
            poll_fn(|context| {
                if woken.future.swap(false, Ordering::Relaxed) {
                    if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                        return Poll::Ready(true);
                    }
                } else if waits && woken.turn().is_none() {
                    return Poll::Ready(false);
                }
                // To wake it prevents that the clock goes on by itself.
                (*woken.turn(), waits) = (Some(context.waker().clone()), true);
                Poll::Pending
            })
            .await
        });
        if is_done {
            return Turn::Done;
        }
        // Its clock cannot go ahead to the next timer instead: something may arrive before, and it never goes back.
        let passed = u64::try_from(self.now.since(self.start).as_millis()).unwrap_or(u64::MAX);
        Turn::Wait(Some(self.start.after(Duration::from_millis(passed.saturating_add(1)))))
    }
}

impl fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRuntime").field("now", &self.now).finish_non_exhaustive()
    }
}
