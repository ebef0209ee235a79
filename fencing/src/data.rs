//! The data path that this example needs, once for both devices: their types have the same methods.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::{Result, bail};
use cmid_blocking::{Connection, Ready};
use cmid_proto::memory::{self, Access, Change, Policy, Way};
use cmid_proto::{Errno, IdKey, Pollable};

use crate::place::Place;

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) wr_id: u64,
    pub(crate) status: Status,
}

/// The number of `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const SUCCESS: Status = Status(0);
    pub(crate) const REMOTE_ACCESS_ERROR: Status = Status(10);
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Status::SUCCESS => f.write_str("success"),
            Status::REMOTE_ACCESS_ERROR => f.write_str("remote access error"),
            Status(other) => write!(f, "status {other}"),
        }
    }
}

/// A device with a data path.
pub(crate) trait Data: Pollable + Send + Sized + 'static {
    type Port: Port;

    /// A QP on an id, with a PD of its own, a CQ, and `len` bytes of memory for messages.
    fn open_port(&mut self, id: IdKey, len: usize) -> Result<Self::Port, Errno>;
}

/// One end of a connection: its QP and what that needs.
pub(crate) trait Port {
    type Lane: Lane;

    /// Memory in the PD of the QP, into which the peer may write.
    fn open_lane(&self, len: usize) -> Result<Self::Lane, Errno>;
    fn read(&self, into: &mut [u8]) -> Result<(), Errno>;
    fn write(&mut self, from: &[u8]) -> Result<(), Errno>;
    fn post_recv(&mut self, wr_id: u64, range: Range<usize>) -> Result<(), Errno>;
    fn post_send(&mut self, wr_id: u64, range: Range<usize>) -> Result<(), Errno>;
    fn post_write(&mut self, wr_id: u64, range: Range<usize>, to: Place) -> Result<(), Errno>;
    fn poll(&mut self) -> Result<Option<Done>, Errno>;
    fn arm(&mut self) -> Result<(), Errno>;
    fn cq_fd(&self) -> BorrowedFd<'_>;
}

/// The log of one candidate at a replica.
pub(crate) trait Lane {
    fn place(&self) -> Place;
    fn read(&self, into: &mut [u8]) -> Result<(), Errno>;
    fn access(&self) -> Option<Access>;
    /// Re-registers it with other rights.
    fn change_access(&mut self, access: Access, policy: Policy) -> Result<Way, memory::Error>;
}

/// Waits for the next completion.
pub(crate) fn completion<D: Data>(
    connection: &mut Connection<D>,
    port: &mut D::Port,
    patience: Duration,
) -> Result<Done> {
    loop {
        // Armed before it is looked at, so that a completion after the look makes the descriptor readable.
        port.arm()?;
        if let Some(done) = port.poll()? {
            return Ok(done);
        }
        match connection.wait_for(Some(port.cq_fd()), patience)? {
            Ready::Descriptor => {}
            Ready::Event(event) => bail!("{} while a work request was awaited", event.kind),
        }
    }
}

macro_rules! data_of {
    ($krate:ident, $device:ident, $module:ident) => {
        mod $module {
            use super::*;

            #[derive(Debug)]
            pub(crate) struct OnePort {
                // In the order in which they are to go: the QP first, the PD last.
                qp: $krate::Qp,
                cq: $krate::Cq,
                messages: $krate::Mr,
                pd: $krate::Pd,
            }

            #[derive(Debug)]
            pub(crate) struct OneLane($krate::Mr);

            impl Data for $krate::$device {
                type Port = OnePort;

                fn open_port(&mut self, id: IdKey, len: usize) -> Result<OnePort, Errno> {
                    let pd = self.alloc_pd(id)?;
                    let cq = self.create_cq(id, 16)?;
                    let qp = self.create_qp(id, &pd, &cq, &cq, $krate::Caps::default())?;
                    let messages =
                        pd.register(vec![0; len], Access::LOCAL_WRITE).map_err(|(_, error)| error.errno())?;
                    Ok(OnePort { qp, cq, messages, pd })
                }
            }

            impl Port for OnePort {
                type Lane = OneLane;

                fn open_lane(&self, len: usize) -> Result<OneLane, Errno> {
                    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
                    self.pd.register(vec![0; len], access).map(OneLane).map_err(|(_, error)| error.errno())
                }
                fn read(&self, into: &mut [u8]) -> Result<(), Errno> {
                    self.messages.read(0, into)
                }
                fn write(&mut self, from: &[u8]) -> Result<(), Errno> {
                    self.messages.write(0, from)
                }
                fn post_recv(&mut self, wr_id: u64, range: Range<usize>) -> Result<(), Errno> {
                    self.qp.post_recv(wr_id, &self.messages, range)
                }
                fn post_send(&mut self, wr_id: u64, range: Range<usize>) -> Result<(), Errno> {
                    self.qp.post_send(wr_id, &self.messages, range)
                }
                fn post_write(&mut self, wr_id: u64, range: Range<usize>, to: Place) -> Result<(), Errno> {
                    let to = $krate::Remote { addr: to.addr, rkey: to.rkey };
                    self.qp.post_write(wr_id, &self.messages, range, to)
                }
                fn poll(&mut self) -> Result<Option<Done>, Errno> {
                    let mut one = [$krate::Completion::default()];
                    let polled = self.cq.poll(&mut one)?;
                    let [done] = one;
                    Ok((polled == 1).then_some(Done { wr_id: done.wr_id, status: Status(done.status.0) }))
                }
                fn arm(&mut self) -> Result<(), Errno> {
                    self.cq.take_notifications()?;
                    self.cq.arm()
                }
                fn cq_fd(&self) -> BorrowedFd<'_> {
                    self.cq.fd()
                }
            }

            impl Lane for OneLane {
                fn place(&self) -> Place {
                    Place { addr: self.0.addr(), rkey: self.0.rkey(), len: self.0.len() as u32 }
                }
                fn read(&self, into: &mut [u8]) -> Result<(), Errno> {
                    self.0.read(0, into)
                }
                fn access(&self) -> Option<Access> {
                    self.0.access()
                }
                fn change_access(&mut self, access: Access, policy: Policy) -> Result<Way, memory::Error> {
                    self.0.reregister(Change::default().to_access(access), policy).result
                }
            }
        }
    };
}

data_of!(cmid_sim, SimDevice, on_sim);
#[cfg(feature = "verbs")]
data_of!(cmid_verbs, Verbs, on_verbs);
