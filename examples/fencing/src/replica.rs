//! The replica: accepts candidates, each with a lane of its own, and deposes leaders.

use anyhow::{Context as _, Result, ensure};
use cmid_blocking::{Connection, Listener, Options};
use cmid_proto::datapath::{Access, CreateError, DataPath, QpParts, prelude::*};
use cmid_proto::memory::{Change, Fallback, Policy, Way};

use crate::candidate::LIMIT;

/// Bytes per lane.
const LANE: usize = 4096;

/// The replica's side of a candidate. Dropped in this order: the QP first, the connection, which owns the device, last.
pub(crate) struct Member<D: DataPath> {
    name: char,
    _qp: D::Qp,
    _cq: D::Cq,
    pub(crate) lane: D::Mr,
    connection: Connection<D>,
}

impl<D: DataPath> Member<D> {
    /// Accepts the next candidate.
    pub(crate) fn admit(listener: &mut Listener<D>, name: char) -> Result<Self> {
        let (connection, (QpParts { qp, cq, .. }, lane)) =
            listener.accept(LIMIT)?.accept(&Options::default(), |device, to| {
                // A PD per candidate: it cannot use the key of another lane.
                let made = device.qp(to).attach()?;
                let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
                let lane = made.pd.register(vec![0; LANE], access)?;
                Ok::<_, CreateError>((made, lane))
            })?;
        println!("replica      gives {name} a lane: rkey {:#x}, {:?}", lane.rkey(), lane.access());
        Ok(Member { name, _qp: qp, _cq: cq, lane, connection })
    }

    /// Revokes the write access of the candidate. After `Ok`, the device refuses every write whose key it checks from now on.
    ///
    /// # Errors
    /// The candidate is **not fenced**: its old key may still allow writes, and it certainly does if the fallback fails at its
    /// last step ([`MemoryStep::DeregisterOld`](cmid_proto::memory::MemoryStep::DeregisterOld)). The replica must then end
    /// the connection and destroy its QP before it follows another leader. Also if the way is not the `expected` one.
    pub(crate) fn depose(&mut self, expected: Way) -> Result<()> {
        let Member { name, lane, .. } = self;
        let (before, access) = (lane.remote(0), lane.access().context("the lane is not registered")?);
        let policy = Policy { fallback: Fallback::Anew, ..Policy::default() };
        let way = lane
            .reregister(Change::default().to_access(access - Access::REMOTE_WRITE), policy)
            .result
            .with_context(|| format!("{name} is NOT fenced, its key {:#x} may still permit writes", before.rkey))?;
        let (after, access) = (lane.remote(0), lane.access());
        // A slice is the proof that no peer can write. In place, soft-RoCE may still copy a packet that it has checked.
        let proof = if lane.slice().is_ok() { "nothing arrives any more" } else { "deregister, to be sure" };
        println!("replica      deposes {name}: {way:?}, {access:?}; its key was {:#x}; {proof}", before.rkey);
        ensure!(way == expected, "re-registered {way:?}, not {expected:?}");
        ensure!(access.is_some_and(|it| !it.contains(Access::REMOTE_WRITE)), "the lane still permits remote writes");
        ensure!(after.addr == before.addr && lane.len() == LANE, "the address or the length of the lane has changed");
        Ok(())
    }

    /// Checks that the lane contains exactly these entries, one after the other.
    pub(crate) fn check(&mut self, entries: &[&str]) -> Result<()> {
        let (name, expected, mut bytes) = (self.name, entries.concat(), vec![0xff; LANE]);
        self.lane.read(0, &mut bytes)?;
        let (written, rest) = bytes.split_at(expected.len());
        ensure!(written == expected.as_bytes(), "the lane of {name} holds {:?}", String::from_utf8_lossy(written));
        ensure!(rest.iter().all(|&byte| byte == 0), "the lane of {name} has data after the entries");
        println!("replica      the lane of {name} holds {entries:?} and nothing else");
        Ok(())
    }

    /// Waits until the candidate disconnects, and replies.
    pub(crate) fn release(mut self) -> Result<()> {
        self.connection.wait_closed(LIMIT)?;
        Ok(self.connection.disconnect(LIMIT)?)
    }
}
