//! Listens, connects, and checks the peers that connect.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use cmid_mio::proto::datapath::DataPath;
use cmid_mio::proto::handshake::{HandshakeError, Incoming, Options, Session};
use cmid_mio::proto::redial::{Cause, Todo};
use cmid_mio::proto::{ConnParam, Errno, Event, IdKey, PortSpace};

use super::{Connection, Driver, LIMIT, Peer, RETRY, Rdma};
use crate::links::VERSION;
use crate::protocol::ReplicaId;

/// The beginning of the private data. The version and the number of the replica follow.
const MAGIC: &[u8; 6] = b"replog";

/// The options of both sides. "Receiver not ready" is repeated without limit, because a busy peer posts its receives later.
fn options(hello: &[u8]) -> Options<'_> {
    // With 7 retries, soft-RoCE retries forever (hazard P48), and a connection with a peer without power would never end.
    let param = ConnParam { responder_resources: 1, initiator_depth: 1, retry_count: 6, ..ConnParam::default() };
    Options { param, private_data: hello, timeout: LIMIT, ..Options::default() }
}

fn hello(id: ReplicaId) -> [u8; 8] {
    let mut hello = [0; 8];
    hello[..6].copy_from_slice(MAGIC);
    hello[6..].copy_from_slice(&[VERSION, id as u8]);
    hello
}

/// Returns the version and the number of a replica; `None` for another program.
fn parse(private_data: &[u8]) -> Option<(u8, ReplicaId)> {
    match private_data.strip_prefix(MAGIC)? {
        [version, id, ..] => Some((*version, (*id).into())),
        _ => None,
    }
}

impl<D: DataPath, R: Driver<D>> Rdma<D, R> {
    pub(super) fn listen(&mut self) -> Result<()> {
        let addr = self.peers[self.id].addr;
        let (channel, backlog) = (self.channel, self.peers.len() as i32);
        if let Some(id) = self.undestroyed.take() {
            self.destroy_listener(id);
        }
        let drive = self.driver.drive();
        let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
        let listens = drive.bind(id, addr).and_then(|()| drive.listen(id, backlog));
        if let Err(error) = listens {
            self.destroy_listener(id);
            bail!(match error.errno() {
                Errno::EADDRINUSE => anyhow!("{addr} is in use: stop the other program, or select another port"),
                Errno::EADDRNOTAVAIL =>
                    anyhow!("{addr} is not an address of this machine: give --id the number of this replica"),
                Errno::ENODEV =>
                    anyhow!("no RDMA device has {addr}: select an address from `rdma link` and `ip address`"),
                _ => anyhow!("cannot listen at {addr}: {error}"),
            });
        }
        self.listener = Some(id);
        Ok(())
    }

    /// Destroys a listener. If that fails, it is tried again before the next attempt to listen.
    pub(super) fn destroy_listener(&mut self, id: IdKey) {
        self.undestroyed = self.driver.drive().destroy_now(id).is_err().then_some(id);
    }

    /// Connects to the peers without a connection, and listens if there was no device.
    ///
    /// # Errors
    /// A call that cannot succeed.
    pub(super) fn retry(&mut self) -> Result<()> {
        let now = self.driver.drive().within(Duration::ZERO);
        if self.listener.is_none() && self.listen_at <= now && self.listen().is_err() {
            self.listen_at = now.after(RETRY);
        }
        for number in 0..self.peers.len() {
            if let Some(redial) = &mut self.peers[number].redial {
                let todo = redial.handle_timeout(now, self.random.u32(..));
                if todo != Todo::Nothing {
                    self.redial(number, todo)?;
                }
            }
        }
        Ok(())
    }

    /// Does what the redial of a peer says.
    fn redial(&mut self, number: ReplicaId, todo: Todo) -> Result<()> {
        let peer = &mut self.peers[number];
        match todo {
            Todo::Dial { deadline } => {
                let hello = hello(self.id);
                let options = Options { deadline, ..options(&hello) };
                match Session::connect(self.driver.drive(), Some(self.channel), peer.addr, &options) {
                    Ok(session) => peer.opening = Some(session),
                    Err(error) => return self.not_connected(number, &error),
                }
            }
            Todo::Cancel => self.cancel(number),
            // The peer does not call, and a new connection is used in `connected`.
            Todo::Nothing | Todo::Wait { .. } | Todo::Accept { .. } | Todo::Reject | Todo::Use { .. } => {}
            Todo::GiveUp(reason) => bail!("cannot connect to replica {number} at {}: {reason}", peer.addr),
        }
        Ok(())
    }

    /// Ends a handshake.
    fn cancel(&mut self, number: ReplicaId) {
        if let Some(mut session) = self.peers[number].opening.take() {
            // An id that cannot be destroyed is in state `Failed`.
            let _ = session.cancel(self.driver.drive());
        }
    }

    /// A handshake has failed. A peer that calls does it again; this replica does what the redial says.
    fn not_connected(&mut self, number: ReplicaId, error: &HandshakeError) -> Result<()> {
        if self.peers[number].redial.is_none() {
            return Ok(());
        }
        let mut cause = Cause::of(error);
        if let (Cause::Refused, Some(data)) = (cause, error.reject_data()) {
            if let Some((version, _)) = parse(data).filter(|(version, _)| *version != VERSION) {
                bail!("replica {number} has version {version}, this one {VERSION}: install one version everywhere");
            }
            // It has another number than this replica believes, until the user corrects that.
            cause = Cause::Heals;
        }
        let now = self.driver.drive().within(Duration::ZERO);
        let Some(redial) = &mut self.peers[number].redial else { return Ok(()) };
        let todo = redial.failed(cause, now, self.random.u32(..));
        if let Todo::GiveUp(_) = todo {
            bail!("cannot connect to replica {number} at {}: {error}", self.peers[number].addr);
        }
        self.redial(number, todo)
    }

    /// Accepts a replica of this version with a smaller number.
    pub(super) fn accept(&mut self, event: Event) {
        let drive = self.driver.drive();
        let Ok(incoming) = Incoming::new(drive, event) else { return };
        let peer = parse(incoming.private_data()).filter(|&(version, peer)| version == VERSION && peer < self.id);
        let Some((_, peer)) = peer else {
            // The private data reports the version to the peer. The reject fails if the peer has gone.
            let _ = incoming.reject(drive, &hello(self.id));
            return;
        };
        // A second request shows that the peer has started again.
        self.cancel(peer);
        let (hello, attach) = (hello(self.id), Connection::with(self.memory));
        let accepted = Session::accept(self.driver.drive(), incoming, &options(&hello), attach);
        self.peers[peer].opening = accepted.ok();
    }

    /// Passes an event to the handshake of its id.
    ///
    /// # Errors
    /// The peer has another version.
    pub(super) fn continue_handshake(&mut self, number: ReplicaId, event: Event) -> Result<()> {
        let Peer { opening: Some(session), redial, .. } = &mut self.peers[number] else { return Ok(()) };
        let drive = self.driver.drive();
        match session.handle(drive, event, Connection::with(self.memory)).map(|opened| opened.is_some()) {
            Ok(false) => {}
            Ok(true) => {
                if let Some(redial) = redial {
                    let _use = redial.established(drive.within(Duration::ZERO));
                }
                self.connected(number);
            }
            Err(error) => {
                self.peers[number].opening = None;
                self.not_connected(number, &error)?;
            }
        }
        Ok(())
    }
}
