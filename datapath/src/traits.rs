//! A trait for each type of the data path. What they promise is what the devices' methods of the same name do; the
//! errors are the devices' too.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::BorrowedFd;

use cmid_proto::memory::{self, Access, Change, Flag, Policy, Way};
use cmid_proto::{AhAttr, Attaching, Errno, IdKey, Pollable};

use crate::{Caps, Remote, To, WcStatus};

/// A device with a data path.
pub trait DataPath: Pollable + Send + Sized + 'static {
    /// Its protection domains.
    type Pd: Pd<Mr = Self::Mr, Ah = Self::Ah, Completion = Self::Completion>;
    /// Its registered memory.
    type Mr: Mr<Pd = Self::Pd>;
    /// Its completion queues.
    type Cq: Cq<Completion = Self::Completion>;
    /// Its completions.
    type Completion: Completion;
    /// Its queue pairs.
    type Qp: Qp<Mr = Self::Mr, Ah = Self::Ah>;
    /// Its address handles.
    type Ah;

    /// A protection domain on the id's device.
    ///
    /// # Errors
    /// The errno of the device.
    fn alloc_pd(&mut self, id: IdKey) -> Result<Self::Pd, Errno>;

    /// A completion queue on the id's device, with a descriptor of its own.
    ///
    /// # Errors
    /// The errno of the device.
    fn create_cq(&mut self, id: IdKey, depth: u32) -> Result<Self::Cq, Errno>;

    /// A queue pair on an id: in the closure of [`Drive::attach_qp`](cmid_proto::Drive::attach_qp).
    ///
    /// # Errors
    /// The errno of the device.
    fn create_qp(
        &mut self,
        attaching: Attaching<'_>,
        pd: &Self::Pd,
        send_cq: &Self::Cq,
        recv_cq: &Self::Cq,
        caps: Caps,
    ) -> Result<Self::Qp, Errno>;

    /// Takes the queue pair off an id.
    ///
    /// # Errors
    /// The errno of the device.
    fn destroy_qp(&mut self, id: IdKey) -> Result<(), Errno>;
}

/// A protection domain.
pub trait Pd {
    /// Memory that is registered in it.
    type Mr;
    /// An address handle of it.
    type Ah;
    /// What an address handle can be made from.
    type Completion;

    /// Registers memory. Unlike the devices' method it keeps the memory from coming back after a failure.
    ///
    /// # Errors
    /// The errno of the region or the device.
    fn register(&self, buffer: Vec<u8>, access: Access) -> Result<Self::Mr, Errno>;

    /// An address handle for a path.
    ///
    /// # Errors
    /// The errno of the device.
    fn create_ah(&self, path: &AhAttr) -> Result<Self::Ah, Errno>;

    /// An address handle of the sender of the datagram that is stored at this offset, header first.
    ///
    /// # Errors
    /// The errno of the device.
    fn create_ah_from(&self, completion: &Self::Completion, mr: &Self::Mr, offset: usize) -> Result<Self::Ah, Errno>;
}

/// Registered memory.
#[expect(clippy::len_without_is_empty, reason = "it is never empty")]
pub trait Mr {
    /// The protection domains that it can belong to.
    type Pd;

    /// Its address.
    fn addr(&self) -> u64;

    /// Its length.
    fn len(&self) -> usize;

    /// The key for peers.
    fn rkey(&self) -> u32;

    /// What may be done with it; `None` if it is not valid.
    fn access(&self) -> Option<Access>;

    /// Copies bytes out.
    ///
    /// # Errors
    /// `EINVAL` if they are not all inside.
    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno>;

    /// Copies bytes in.
    ///
    /// # Errors
    /// `EINVAL` if they are not all inside.
    fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), Errno>;

    /// Loads a number that a peer writes, as an atomic.
    ///
    /// # Errors
    /// `EINVAL` if it is not all inside, or not aligned.
    fn load_acquire<F: Flag>(&self, offset: usize) -> Result<F, Errno>;

    /// Stores a number that a peer reads, as an atomic.
    ///
    /// # Errors
    /// `EINVAL` if it is not all inside, or not aligned.
    fn store_release<F: Flag>(&mut self, offset: usize, number: F) -> Result<(), Errno>;

    /// The memory, to be read, while nothing but this program can write to it.
    ///
    /// # Errors
    /// `EBUSY` while work in flight names it, `EACCES` if peers may write to it, `EINVAL` if it is unusable.
    fn slice(&mut self) -> Result<impl Deref<Target = [u8]>, Errno>;

    /// The memory, to be written to, while nothing else can write to it.
    ///
    /// # Errors
    /// As [`Mr::slice`].
    fn slice_mut(&mut self) -> Result<impl DerefMut<Target = [u8]>, Errno>;

    /// Eight bytes, by one atomic load; `None` if they are not all inside, or not aligned.
    fn word(&self, offset: usize) -> Option<u64>;

    /// Re-registers it. Unlike the devices' method it drops the buffer that the device does not refer to afterwards.
    ///
    /// # Errors
    /// Refused by the machine, or failed at the device.
    fn reregister(&mut self, change: Change<Self::Pd, Vec<u8>>, policy: Policy) -> Result<Way, memory::Error>;

    /// Where a peer finds it.
    fn remote(&self) -> Remote {
        Remote { addr: self.addr(), rkey: self.rkey() }
    }
}

/// A completion queue.
pub trait Cq {
    /// Its completions.
    type Completion: Completion;

    /// Takes the oldest completion. The devices' method takes as many as there is room for.
    ///
    /// # Errors
    /// The errno of the device.
    fn poll(&mut self) -> Result<Option<Self::Completion>, Errno>;

    /// Asks for one notification, when the next completion comes.
    ///
    /// # Errors
    /// The errno of the device.
    fn arm(&self) -> Result<(), Errno>;

    /// Readable when there are notifications.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Takes notifications that have come, one at least if any has, and returns how many. One that is left keeps the
    /// descriptor readable, and the next call takes it.
    ///
    /// # Errors
    /// The errno of the device.
    fn take_notifications(&self) -> Result<u32, Errno>;
}

/// The end of a work request. The devices have fields of these names.
pub trait Completion: Copy + Debug + Default {
    /// The number that was given when posting.
    fn wr_id(&self) -> u64;

    /// How it ended.
    fn status(&self) -> WcStatus;

    /// What it was, such as [`RECV`](crate::RECV).
    fn opcode(&self) -> u32;

    /// How many bytes were received or read; for a datagram with the [`GRH_LEN`](crate::GRH_LEN) before it.
    fn byte_len(&self) -> u32;

    /// The QP that sent the datagram.
    fn src_qp(&self) -> u32;
}

/// A queue pair.
pub trait Qp {
    /// The memory that its work requests name.
    type Mr;
    /// How datagrams are addressed.
    type Ah;

    /// Its number.
    fn num(&self) -> u32;

    /// Posts a message to be sent.
    ///
    /// # Errors
    /// The errno of the device.
    fn post_send(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno>;

    /// Posts a datagram to be sent.
    ///
    /// # Errors
    /// The errno of the device.
    fn post_send_to(
        &mut self,
        wr_id: u64,
        mr: &Self::Mr,
        range: Range<usize>,
        to: To<'_, Self::Ah>,
    ) -> Result<(), Errno>;

    /// Posts a place for a message to arrive at.
    ///
    /// # Errors
    /// The errno of the device.
    fn post_recv(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno>;

    /// Posts an RDMA read of the peer's memory.
    ///
    /// # Errors
    /// The errno of the device.
    fn post_read(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>, from: Remote) -> Result<(), Errno>;

    /// Posts an RDMA write to the peer's memory.
    ///
    /// # Errors
    /// The errno of the device.
    fn post_write(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>, to: Remote) -> Result<(), Errno>;
}
