//! The replica: accepts candidates, sends each the address of its lane, and deposes leaders.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use cmid_blocking::{Connection, Listener, Options};
use cmid_proto::datapath::{Access, DataPath, MemoryRegion, WcStatus};
use cmid_proto::memory::{Change, Fallback, Policy, Way};

use crate::candidate::{ENTRY, PATIENCE};
use crate::lane_addr::LaneAddr;
use crate::port::Port;

/// Bytes per lane.
const LANE: usize = 4096;

const SEND: u64 = 3;

/// The replica's side of a candidate.
struct Member<D: DataPath> {
    name: char,
    _port: Port<D>,
    lane: D::Mr,
    // Dropped last: it owns the device.
    connection: Connection<D>,
}

/// The replica: the listener and the logs.
pub(crate) struct Replica<D: DataPath> {
    members: Vec<Member<D>>,
    listener: Listener<D>,
}

impl<D: DataPath> Replica<D> {
    pub(crate) fn listen(device: D, address: SocketAddr) -> Result<Self> {
        let listener = Listener::bind(device, address)?;
        println!("replica      listens on {}", listener.local_addr()?);
        Ok(Replica { members: Vec::new(), listener })
    }

    /// Accepts the next candidate.
    pub(crate) fn admit(&mut self) -> Result<()> {
        let incoming = self.listener.accept(PATIENCE)?;
        let name = incoming.private_data().first().map_or('?', |&byte| byte.into());
        let (mut connection, (mut port, lane)) = incoming.accept(&Options::default(), |device, id| {
            // The port has its own PD, so this candidate cannot use the key of another lane.
            let port = Port::open(device, id, ENTRY)?;
            let lane = port.open_lane(LANE)?;
            Ok((port, lane))
        })?;
        let lane_addr = LaneAddr::of(&lane);
        port.write(&lane_addr.encode())?;
        port.post_send(SEND, 0..LaneAddr::LEN)?;
        let completion = port.completion(&mut connection, PATIENCE)?;
        ensure!(
            (completion.wr_id, completion.status) == (SEND, WcStatus::SUCCESS),
            "the message to candidate {name} was not sent: {completion:?}"
        );
        println!("replica      gives {name} a lane: rkey {:#x}, {}", lane_addr.rkey, rights(&lane));
        self.members.push(Member { name, _port: port, lane, connection });
        Ok(())
    }

    /// Revokes the write access of a candidate. After `Ok`, the device refuses every write that reaches it.
    ///
    /// # Errors
    /// The candidate is **not fenced**: after any failure its old key may still allow writes. It certainly does if
    /// the fallback fails at its last step, `ibv_dereg_mr` of the old registration
    /// ([`Step::DeregisterOld`](cmid_proto::memory::MemoryStep::DeregisterOld)): the old registration is then unchanged.
    /// After a failure, a replica must end the candidate's connection and destroy its QP before it follows another
    /// leader.
    ///
    /// Also fails if the access was revoked in another way than `expected`.
    pub(crate) fn depose(&mut self, name: char, expected: Way) -> Result<()> {
        let Member { lane, .. } = self.member(name)?;
        let (before, access) = (LaneAddr::of(lane), lane.access().context("the lane is not registered")?);
        let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
        let way = lane
            .reregister(Change::default().to_access(access - Access::REMOTE_WRITE), policy)
            .result
            .with_context(|| format!("{name} is NOT fenced, its key {:#x} may still permit writes", before.rkey))?;
        let (after, access) = (LaneAddr::of(lane), lane.access());
        match way {
            Way::InPlace => println!("replica      deposes {name}: re-registered in place, {}", rights(lane)),
            Way::Anew => {
                println!(
                    "replica      deposes {name}: registered anew, {}; the key {:#x} is invalid",
                    rights(lane),
                    before.rkey
                );
            }
        }
        ensure!(way == expected, "re-registered {way:?}, not {expected:?}");
        ensure!(way == Way::InPlace || after.rkey != before.rkey, "a new registration with the old key");
        ensure!(
            access.is_some_and(|access| !access.contains(Access::REMOTE_WRITE)),
            "the lane still permits remote writes"
        );
        ensure!(
            (after.addr, after.len) == (before.addr, before.len),
            "the address or the length of the lane has changed"
        );
        Ok(())
    }

    /// Checks that a lane contains exactly these entries, one after the other.
    pub(crate) fn check(&mut self, name: char, entries: &[&str]) -> Result<()> {
        let mut bytes = vec![0xff; LANE];
        self.member(name)?.lane.read(0, &mut bytes)?;
        let expected = entries.concat();
        let (written, rest) = bytes.split_at(expected.len());
        ensure!(written == expected.as_bytes(), "the lane of {name} holds {:?}", String::from_utf8_lossy(written));
        ensure!(rest.iter().all(|&byte| byte == 0), "the lane of {name} has data after the entries");
        println!("replica      the lane of {name} holds {entries:?} and nothing else");
        Ok(())
    }

    /// Waits until a candidate disconnects, and replies.
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

/// The access rights of a lane in words.
fn rights(lane: &impl MemoryRegion) -> String {
    let names = lane.access().map(|access| access.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(" and "));
    names.unwrap_or_else(|| "not registered".to_owned())
}

#[cfg(test)]
mod tests {
    use cmid_proto::Errno;
    use cmid_sim::{Clock, Config, Fabric, Rereg};

    use super::*;
    use crate::candidate::{Candidate, joined};

    #[test]
    fn a_failure_to_depose_leaves_the_old_key_good_for_writing() {
        let fabric = Fabric::new(Config { clock: Clock::Real, rereg: Rereg::None, ..Config::default() });
        let address = SocketAddr::from(([10, 0, 0, 2], 7475));
        let host = fabric.host(&[[10, 0, 0, 1].into(), address.ip()]);
        let mut replica = Replica::listen(host.device(), address).expect("listen");
        let a = Candidate::start('A', host.device(), address).expect("start");
        replica.admit().expect("admit");

        // The new registration succeeds; the deregistration of the old one fails.
        host.fail_next_deregistration(Errno::EBUSY);
        let error = replica.depose('A', Way::Anew).expect_err("the old registration cannot be deregistered");
        assert!(format!("{error:#}").starts_with("A is NOT fenced"), "{error:#}");
        assert_eq!(a.replicate("x = 3; ").expect("an answer"), WcStatus::SUCCESS);
        replica.check('A', &["x = 3; "]).expect("it was written");

        // A second attempt succeeds.
        replica.depose('A', Way::Anew).expect("depose");
        assert_eq!(a.replicate("x = 4; ").expect("an answer"), WcStatus::REM_ACCESS_ERR);
        replica.check('A', &["x = 3; "]).expect("nothing more was written");
        let thread = a.leave();
        replica.release('A').expect("release");
        joined(thread).expect("no failure");
    }
}
