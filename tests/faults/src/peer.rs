//! A peer in a process of its own, which is killed with SIGKILL in some phase.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use cmid_harness::{Check, Env, Failure, Fixture, Side};
use cmid_proto::{Acks, CmEvent, PortSpace, Time};

use crate::fixture::{AT_ONCE, SOON};
use crate::{Link, Phase};

/// The role of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It connects.
    Client,
    /// It listens.
    Server,
}

/// A peer's role and the phase in which it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    /// Which side.
    pub role: Role,
    /// When it is killed.
    pub phase: Phase,
    /// The peer has moved its connection with a pending event, or its listener with a pending request, to another
    /// channel.
    pub migrated: bool,
}

impl Killed {
    /// The arguments of `faults` that start the process.
    #[must_use]
    pub fn arguments(self, link: Link, port: u16) -> Vec<String> {
        let (number, port) = (link.number().to_string(), port.to_string());
        let (role, phase) = (format!("{:?}", self.role), format!("{:?}", self.phase));
        let mut arguments = vec!["peer", "--link", &number, "--port", &port, "--role", &role, "--phase", &phase];
        arguments.extend(self.migrated.then_some("--migrated"));
        arguments.into_iter().map(str::to_owned).collect()
    }
}

/// A peer that has reached its phase. It is killed when dropped, at the latest.
#[derive(Debug)]
pub(crate) struct Peer(Child);

impl Peer {
    /// Starts this program again as the peer on this link.
    pub(crate) fn start(link: Link, port: u16, killed: Killed) -> Check<(Self, mpsc::Receiver<String>)> {
        let this = std::env::current_exe()?;
        let mut command = Command::new(this);
        command.args(killed.arguments(link, port));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or_else(|| Failure("the peer has no output".into()))?;
        let (sender, receiver) = mpsc::channel();
        // The thread ends with the peer.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok((Peer(child), receiver))
    }

    /// Kills the peer with SIGKILL.
    pub(crate) fn kill(mut self) -> Check {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The peer may have been killed already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the peer prints this line.
pub(crate) fn expect_line(from: &mpsc::Receiver<String>, wanted: &str) -> Check {
    let at_most = 3 * SOON;
    let line = from.recv_timeout(at_most).map_err(|_| Failure(format!("the peer did not print {wanted:?}")))?;
    if line == wanted { Ok(()) } else { Err(Failure(format!("the peer printed {line:?}, expected {wanted:?}"))) }
}

/// Runs the peer: reaches the phase, prints "there", and does nothing more.
///
/// # Errors
/// A step on the way to the phase fails.
pub fn play<L: Env>(env: &L, link: Link, port: u16, killed: Killed) -> Check {
    let mut b = Fixture::new(env, Acks::OnDelivery)?;
    b.be_patient(3 * SOON);
    b.address = (link.ip(Side::Server), port).into();
    match killed.role {
        Role::Client => as_client(&mut b, link, killed)?,
        Role::Server => as_server(&mut b, killed)?,
    }
    say("there")?;
    std::thread::sleep(Duration::from_secs(60));
    Err(Failure("nobody has killed it".into()))
}

fn as_client<L: Env>(b: &mut Fixture<'_, L>, link: Link, killed: Killed) -> Check {
    let phase = killed.phase;
    if phase == Phase::Bound {
        let channel = b.client.channel;
        let id = b.client.drive().create_id(Some(channel), PortSpace::Tcp)?;
        b.client.drive().bind(id, (link.ip(Side::Client), 0).into())?;
        return Ok(());
    }
    let id = b.addr_resolved()?;
    if phase == Phase::AddrResolved {
        return Ok(());
    }
    b.client.drive().resolve_route(id, Time::NEVER)?;
    let channel = b.client.channel;
    let _ = b.next(Side::Client, channel, &CmEvent::RouteResolved)?;
    if phase == Phase::RouteResolved {
        return Ok(());
    }
    b.connect(id, &[])?;
    if matches!(phase, Phase::Unread | Phase::Requested | Phase::Accepted) {
        return Ok(());
    }
    let _ = b.next(Side::Client, channel, &CmEvent::ConnectResponse)?;
    if phase == Phase::Responded {
        return Ok(());
    }
    b.client.drive().establish(id)?;
    if phase == Phase::Disconnecting {
        b.client.drive().disconnect(id, Time::NEVER)?;
    }
    if killed.migrated {
        pends("connected")?;
        let other = b.client.drive().open_channel(Acks::OnDelivery)?;
        b.client.drive().migrate(id, Some(other), Time::NEVER)?;
    }
    Ok(())
}

fn as_server<L: Env>(b: &mut Fixture<'_, L>, killed: Killed) -> Check {
    let listener = b.listen()?;
    let phase = killed.phase;
    if phase == Phase::Bound {
        return Ok(());
    }
    if phase == Phase::Unread {
        pends("listening")?;
        if killed.migrated {
            let other = b.server.drive().open_channel(Acks::OnDelivery)?;
            b.server.drive().migrate(listener, Some(other), Time::NEVER)?;
        }
        return Ok(());
    }
    say("listening")?;
    let channel = b.server.channel;
    let id = b.next(Side::Server, channel, &CmEvent::ConnectRequest)?.id;
    if phase == Phase::Requested {
        return Ok(());
    }
    b.accept(id, &[])?;
    if matches!(phase, Phase::Accepted | Phase::Responded) {
        return Ok(());
    }
    let _ = b.next(Side::Server, channel, &CmEvent::Established)?;
    if phase == Phase::Disconnecting {
        b.server.drive().disconnect(id, Time::NEVER)?;
    }
    if killed.migrated {
        pends("connected")?;
        let other = b.server.drive().open_channel(Acks::OnDelivery)?;
        b.server.drive().migrate(id, Some(other), Time::NEVER)?;
    }
    Ok(())
}

/// Prints how far the peer is. Then gives the other side time to cause the event that is to be pending here.
fn pends(said: &str) -> Check {
    say(said)?;
    std::thread::sleep(2 * AT_ONCE);
    Ok(())
}

fn say(line: &str) -> Check {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}
