//! The driver behind its lock, and the events of each id.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use cmid_epoll::proto::handshake::Incoming;
use cmid_epoll::proto::{Acks, ChannelKey, Drive, Errno, Event, IdKey, Next, Pollable, Time};
use cmid_epoll::{Epoll, Interest};

/// The type of a reactor's drive, which closures get.
pub type DriveOf<D> = Drive<D, Interest>;

/// The events of an id that no future has taken yet, and the task that waits for the next one.
#[derive(Debug, Default)]
struct Inbox {
    events: VecDeque<Event>,
    waker: Option<Waker>,
}

/// A driver with the inboxes of its ids. Connection requests are in the inbox of their listener.
#[derive(Debug)]
pub(crate) struct State<D: Pollable> {
    pub(crate) driver: Epoll<D>,
    pub(crate) channel: ChannelKey,
    inboxes: HashMap<IdKey, Inbox>,
    /// The errno of the driver's wait, once it has failed.
    failed: Option<Errno>,
}

impl<D: Pollable> State<D> {
    /// Makes turns until no work is left, and puts the events into the inboxes.
    fn run(&mut self) {
        loop {
            match self.driver.turn() {
                Ok(Next::Wait(_)) => return,
                Ok(Next::Deliver | Next::Again) => {}
                Err(error) => {
                    self.failed = Some(Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)));
                    self.inboxes.values_mut().filter_map(|inbox| inbox.waker.take()).for_each(Waker::wake);
                    return;
                }
            }
            while let Some(event) = self.driver.drive().next_event(self.channel) {
                if let Some(inbox) = self.inboxes.get_mut(&event.listener.unwrap_or(event.id)) {
                    inbox.events.push_back(event);
                    inbox.waker.take().into_iter().for_each(Waker::wake);
                } else {
                    self.discard(event);
                }
            }
        }
    }

    /// Drops an event that no future waits for. The id of a connection request is destroyed, which rejects the peer.
    fn discard(&mut self, event: Event) {
        if let Ok(incoming) = Incoming::new(self.driver.drive(), event) {
            // It fails only if the device does.
            let _ = self.driver.drive().destroy(incoming.id(), Time::NEVER);
        }
    }
}

/// The state behind a lock, which no future holds while it waits.
#[derive(Debug)]
pub(crate) struct Shared<D: Pollable>(Mutex<State<D>>);

/// The locked state. Unlocking it runs the driver, because after requests a turn has to arm the driver's descriptor.
#[derive(Debug)]
pub(crate) struct Locked<'a, D: Pollable>(MutexGuard<'a, State<D>>);

impl<D: Pollable> Shared<D> {
    pub(crate) fn new(mut driver: Epoll<D>) -> io::Result<Self> {
        let channel = driver.drive().open_channel(Acks::OnDelivery)?;
        Ok(Shared(Mutex::new(State { driver, channel, inboxes: HashMap::new(), failed: None })))
    }

    pub(crate) fn lock(&self) -> Locked<'_, D> {
        Locked(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<D: Pollable> Deref for Locked<'_, D> {
    type Target = State<D>;
    fn deref(&self) -> &State<D> {
        &self.0
    }
}

impl<D: Pollable> DerefMut for Locked<'_, D> {
    fn deref_mut(&mut self) -> &mut State<D> {
        &mut self.0
    }
}

impl<D: Pollable> Drop for Locked<'_, D> {
    fn drop(&mut self) {
        self.0.run();
    }
}

/// An id with its inbox. Dropping it destroys the id.
#[derive(Debug)]
pub(crate) struct Owned<D: Pollable> {
    pub(crate) shared: Arc<Shared<D>>,
    id: IdKey,
}

impl<D: Pollable> Owned<D> {
    /// Owns an id that was created under the same lock, so that no event of it is lost.
    pub(crate) fn new(shared: &Arc<Shared<D>>, state: &mut State<D>, id: IdKey) -> Self {
        state.inboxes.insert(id, Inbox::default());
        Owned { shared: Arc::clone(shared), id }
    }

    pub(crate) fn id(&self) -> IdKey {
        self.id
    }

    /// Returns the next event. A future that is dropped has taken no event.
    pub(crate) async fn next_event(&self) -> io::Result<Event> {
        poll_fn(|context| {
            let mut state = self.shared.lock();
            let failed = state.failed;
            let Some(inbox) = state.inboxes.get_mut(&self.id) else { return Poll::Ready(Err(Errno::ENOENT.into())) };
            match (inbox.events.pop_front(), failed) {
                (Some(event), _) => Poll::Ready(Ok(event)),
                (None, Some(errno)) => Poll::Ready(Err(errno.into())),
                (None, None) => {
                    inbox.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<D: Pollable> Drop for Owned<D> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let events = state.inboxes.remove(&self.id).map(|inbox| inbox.events);
        events.into_iter().flatten().for_each(|event| state.discard(event));
        if state.driver.drive().core().state(self.id).is_some() {
            // It fails only if the device does.
            let _ = state.driver.drive().destroy(self.id, Time::NEVER);
        }
    }
}
