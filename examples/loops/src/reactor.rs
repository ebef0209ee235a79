//! A reactor that accepts the requests of its queue, into which the acceptor puts them
//! ([`on_acceptor`](crate::on_acceptor)).

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use cmid_epoll::proto::datapath::DataPath;
use cmid_epoll::proto::handshake::ReleasedIncoming;
use cmid_epoll::proto::{Acks, CmEvent, Time};
use cmid_epoll::{Config, Epoll, Waker};

use crate::program::{PARAM, attach};

/// Accepts the requests of its queue until the queue is closed and the connections have ended.
pub(crate) fn react<D: DataPath>(
    device: D,
    requests: &Receiver<ReleasedIncoming<D::Handle>>,
    started: &Sender<Waker>,
) -> io::Result<()> {
    let mut driver = Epoll::new(device, Config::default())?;
    let on = driver.drive().open_channel(Acks::OnDelivery)?;
    started.send(driver.waker()?).map_err(io::Error::other)?;
    let (mut serves, mut connections) = (HashMap::new(), HashMap::new());
    loop {
        match requests.try_recv() {
            Ok(released) => {
                let incoming = released.adopt(driver.drive(), Some(on))?;
                let serve = incoming
                    .accept(driver.drive(), PARAM, &[], Time::NEVER, |drive, id| drive.attach_qp(id, attach::<D>))?;
                serves.insert(serve.id(), serve);
                continue;
            }
            Err(TryRecvError::Disconnected) if serves.is_empty() && connections.is_empty() => return Ok(()),
            Err(TryRecvError::Disconnected | TryRecvError::Empty) => driver.wait(None)?,
        }
        while let Some(event) = driver.drive().next_event(on) {
            let id = event.id;
            if let Some(serve) = serves.get_mut(&id) {
                if let Some(connected) = serve.handle(driver.drive(), event)? {
                    connections.insert(id, connected);
                    serves.remove(&id);
                }
            } else if event.into_result()?.cm() == Some(CmEvent::Disconnected) {
                driver.drive().disconnect(id, Time::NEVER)?;
                let _done = driver.drive().destroy(id, Time::NEVER)?;
                connections.remove(&id);
            }
        }
    }
}
