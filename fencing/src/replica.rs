//! The replica: it accepts candidates, tells each where its lane is, and deposes.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use cmid_blocking::{Connection, Listener, Options};
use cmid_proto::memory::{Access, Fallback, Policy, Way};

use crate::candidate::{ENTRY, PATIENCE};
use crate::data::{Data, Lane, Port, Status, completion};
use crate::place::Place;

/// Bytes of a lane.
const LANE: usize = 4096;

const SEND: u64 = 3;

/// A candidate as the replica sees it.
struct Member<D: Data> {
    name: char,
    _port: D::Port,
    lane: <D::Port as Port>::Lane,
    // Dropped last: it owns the device.
    connection: Connection<D>,
}

/// What holds the logs.
pub(crate) struct Replica<D: Data> {
    members: Vec<Member<D>>,
    listener: Listener<D>,
}

impl<D: Data> Replica<D> {
    pub(crate) fn listen(device: D, address: SocketAddr) -> Result<Self> {
        let listener = Listener::bind(device, address)?;
        println!("replica      listens on {}", listener.local_addr()?);
        Ok(Replica { members: Vec::new(), listener })
    }

    /// Takes in the next candidate.
    pub(crate) fn admit(&mut self) -> Result<()> {
        let incoming = self.listener.accept(PATIENCE)?;
        let name = incoming.private_data().first().map_or('?', |&byte| byte.into());
        let (mut connection, (mut port, lane)) = incoming.accept(&Options::default(), |device, id| {
            // The port has a PD of its own: with another lane's key this candidate could do nothing.
            let port = device.open_port(id, ENTRY)?;
            let lane = port.open_lane(LANE)?;
            Ok((port, lane))
        })?;
        port.write(&lane.place().encode())?;
        port.post_send(SEND, 0..Place::LEN)?;
        let told = completion(&mut connection, &mut port, PATIENCE)?;
        ensure!((told.wr_id, told.status) == (SEND, Status::SUCCESS), "candidate {name} was not told: {told:?}");
        println!("replica      gives {name} a lane: rkey {:#x}, {}", lane.place().rkey, rights(&lane));
        self.members.push(Member { name, _port: port, lane, connection });
        Ok(())
    }

    /// Takes the right to write from a candidate: what comes to the device after this has returned is refused.
    ///
    /// # Errors
    /// If the right could not be taken, or not in this way.
    pub(crate) fn depose(&mut self, name: char, expected: Way) -> Result<()> {
        let Member { lane, .. } = self.member(name)?;
        let (before, access) = (lane.place(), lane.access().context("the lane is not registered")?);
        let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
        let way = lane.change_access(access - Access::REMOTE_WRITE, policy)?;
        let (after, access) = (lane.place(), lane.access());
        match way {
            Way::InPlace => println!("replica      deposes {name}: re-registered in place, {}", rights(lane)),
            Way::Anew => {
                println!(
                    "replica      deposes {name}: registered anew, {}; the key {:#x} is dead",
                    rights(lane),
                    before.rkey
                );
            }
        }
        ensure!(way == expected, "it went {way:?}, not {expected:?}");
        ensure!(way == Way::InPlace || after.rkey != before.rkey, "a new registration with the old key");
        ensure!(access.is_some_and(|access| !access.contains(Access::REMOTE_WRITE)), "it can still be written to");
        ensure!((after.addr, after.len) == (before.addr, before.len), "the lane has moved");
        Ok(())
    }

    /// Checks that a lane holds these entries, one behind the other, and nothing after.
    pub(crate) fn check(&mut self, name: char, entries: &[&str]) -> Result<()> {
        let mut bytes = vec![0xff; LANE];
        self.member(name)?.lane.read(&mut bytes)?;
        let expected = entries.concat();
        let (written, rest) = bytes.split_at(expected.len());
        ensure!(written == expected.as_bytes(), "the lane of {name} holds {:?}", String::from_utf8_lossy(written));
        ensure!(rest.iter().all(|&byte| byte == 0), "something follows in the lane of {name}");
        println!("replica      the lane of {name} holds {entries:?} and nothing else");
        Ok(())
    }

    /// Answers the end of a candidate's connection.
    pub(crate) fn release(&mut self, name: char) -> Result<()> {
        let connection = &mut self.member(name)?.connection;
        connection.wait_closed(PATIENCE)?;
        connection.disconnect(PATIENCE)?;
        Ok(())
    }

    fn member(&mut self, name: char) -> Result<&mut Member<D>> {
        self.members
            .iter_mut()
            .find(|member| member.name == name)
            .with_context(|| format!("there is no candidate {name}"))
    }
}

/// What may be done with a lane, in words.
fn rights(lane: &impl Lane) -> String {
    let names = lane.access().map(|access| access.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(" and "));
    names.unwrap_or_else(|| "not registered".to_owned())
}
