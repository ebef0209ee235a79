//! The datagram path, once for both devices: their types have the same methods.

use std::ops::Range;

use cmid_proto::{AhAttr, Errno, IdKey};

/// The bytes before each datagram that arrives: its global route header.
pub(crate) const GRH_LEN: usize = 40;

/// A datagram that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// What the receive was posted with.
    pub(crate) slot: usize,
    /// Bytes, without the header.
    pub(crate) len: usize,
    /// Who sent it.
    pub(crate) src_qp: u32,
}

/// What a poll of the CQ gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    Nothing,
    Sent,
    Arrived(Arrived),
    /// The status of a work request that failed.
    Failed(u32),
}

/// A datagram QP with one CQ and its buffers.
pub(crate) trait Port: Sized {
    /// A way to a QP or a group.
    type Way;

    fn num(&self) -> u32;
    fn way(&self, path: &AhAttr) -> Result<Self::Way, Errno>;
    /// Back to who sent what lies in a slot.
    fn way_back(&self, arrived: Arrived) -> Result<Self::Way, Errno>;
    fn post_recv(&mut self, slot: usize) -> Result<(), Errno>;
    /// Sends bytes; one send at a time.
    fn send(&mut self, bytes: &[u8], way: &Self::Way, qp_num: u32, qkey: u32) -> Result<(), Errno>;
    fn read(&self, arrived: Arrived) -> Result<Vec<u8>, Errno>;
    fn poll(&mut self) -> Result<Polled, Errno>;
}

/// How many receives a port has buffers for.
pub(crate) const SLOTS: usize = 32;

/// A device with a datagram path.
pub(crate) trait Data: cmid_proto::Pollable + Send + 'static {
    type Port: Port;

    /// A QP on an id, for datagrams of at most `size` bytes.
    fn open_port(&mut self, id: IdKey, size: usize) -> Result<Self::Port, Errno>;
    fn close_port(&mut self, id: IdKey) -> Result<(), Errno>;
}

/// The range of a slot: the header, then the datagram. The last slot is what is sent.
fn slot(number: usize, size: usize) -> Range<usize> {
    let width = GRH_LEN + size;
    number * width..(number + 1) * width
}

const RECV: u32 = 128;

macro_rules! data_of {
    ($krate:ident, $device:ident, $module:ident) => {
        pub(crate) mod $module {
            use super::*;

            /// The QP, what it needs, and its buffers.
            #[derive(Debug)]
            pub(crate) struct OnePort {
                qp: $krate::Qp,
                cq: $krate::Cq,
                mr: $krate::Mr,
                pd: $krate::Pd,
                size: usize,
                /// Of each slot: the completion that an address handle is made from.
                last: [$krate::Completion; SLOTS],
            }

            impl Data for $krate::$device {
                type Port = OnePort;

                fn open_port(&mut self, id: IdKey, size: usize) -> Result<OnePort, Errno> {
                    let depth = 2 * SLOTS as u32;
                    let pd = self.alloc_pd(id)?;
                    let cq = self.create_cq(id, depth)?;
                    let caps = $krate::Caps { max_send_wr: depth, max_recv_wr: depth, ..Default::default() };
                    let qp = self.create_qp(id, &pd, &cq, &cq, caps)?;
                    let bytes = slot(SLOTS, size).end;
                    let mr =
                        pd.register(vec![0; bytes], $krate::Access::LOCAL_WRITE).map_err(|(_, error)| error.errno())?;
                    Ok(OnePort { qp, cq, mr, pd, size, last: [$krate::Completion::default(); SLOTS] })
                }

                fn close_port(&mut self, id: IdKey) -> Result<(), Errno> {
                    self.destroy_qp(id)
                }
            }

            impl Port for OnePort {
                type Way = $krate::Ah;

                fn num(&self) -> u32 {
                    self.qp.num()
                }

                fn way(&self, path: &AhAttr) -> Result<$krate::Ah, Errno> {
                    self.pd.create_ah(path)
                }

                fn way_back(&self, arrived: Arrived) -> Result<$krate::Ah, Errno> {
                    let completion = self.last.get(arrived.slot).ok_or(Errno::EINVAL)?;
                    self.pd.create_ah_from(completion, &self.mr, slot(arrived.slot, self.size).start)
                }

                fn post_recv(&mut self, number: usize) -> Result<(), Errno> {
                    self.qp.post_recv(number as u64, &self.mr, slot(number, self.size))
                }

                fn send(&mut self, bytes: &[u8], way: &$krate::Ah, qp_num: u32, qkey: u32) -> Result<(), Errno> {
                    let start = slot(SLOTS, self.size).start;
                    self.mr.write(start, bytes)?;
                    let to = $krate::To { ah: way, qp_num, qkey };
                    self.qp.post_send_to(SLOTS as u64, &self.mr, start..start + bytes.len(), to)
                }

                fn read(&self, arrived: Arrived) -> Result<Vec<u8>, Errno> {
                    let mut bytes = vec![0; arrived.len];
                    self.mr.read(slot(arrived.slot, self.size).start + GRH_LEN, &mut bytes)?;
                    Ok(bytes)
                }

                fn poll(&mut self) -> Result<Polled, Errno> {
                    let mut one = [$krate::Completion::default()];
                    if self.cq.poll(&mut one)? == 0 {
                        return Ok(Polled::Nothing);
                    }
                    let [done] = one;
                    if done.status != $krate::WcStatus::SUCCESS {
                        return Ok(Polled::Failed(done.status.0));
                    }
                    if done.opcode != RECV {
                        return Ok(Polled::Sent);
                    }
                    let slot = done.wr_id as usize;
                    if let Some(last) = self.last.get_mut(slot) {
                        *last = done;
                    }
                    let len = (done.byte_len as usize).saturating_sub(GRH_LEN);
                    Ok(Polled::Arrived(Arrived { slot, len, src_qp: done.src_qp }))
                }
            }
        }
    };
}

data_of!(cmid_sim, SimDevice, on_sim);
#[cfg(feature = "verbs")]
data_of!(cmid_verbs, Verbs, on_verbs);
