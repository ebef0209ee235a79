//! An event channel: an open file of the kernel's connection manager. Commands are written to it by write(2).

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use cmid_proto::{CmOption, Errno, IdKey, Outcome};

use crate::kernel::abi::{self, Command, Header};
use crate::kernel::answer::location;
use crate::kernel::location::Location;
use crate::kernel::node::{Node, OpenError};
#[cfg(feature = "scripted-kernel")]
use crate::kernel::script;
use crate::sign::unsigned;
use crate::{errno, macros};

/// The structure of a command.
///
/// # Safety
/// It is `repr(C)`, consists of integers without padding, and is aligned to at most 8. It is the structure that the
/// kernel reads for `COMMAND`.
pub(crate) unsafe trait Body: Copy {
    const COMMAND: Command;
}

/// The structure of a command without a response.
///
/// # Safety
/// It contains no address.
pub(crate) unsafe trait WithoutResponse: Body {}

/// The structure of a command with a response.
///
/// # Safety
/// `response` returns its field of that name. It contains no other address.
pub(crate) unsafe trait WithResponse: Body {
    fn response(&mut self) -> &mut u64;
}

/// An answer that is read as a structure.
///
/// # Safety
/// It is `repr(C)` and consists of integers without padding.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: `tests/kernel_layout.rs` compares it with the header. It has no padding.
unsafe impl Plain for abi::QpAttr {}

macro_rules! bodies {
    ($($body:ident),+ $(,)?) => {$(
        // SAFETY: `tests/kernel_layout.rs` compares it with the header, whose structures spell out all padding. The
        // names of command and structure agree (drivers/infiniband/core/ucma.c); a leave takes that of a destroy.
        unsafe impl Body for abi::$body {
            const COMMAND: Command = Command::$body;
        }
    )+};
}

macro_rules! without_response {
    ($($body:ident),+ $(,)?) => {
        bodies!($($body),+);
        $(
            // SAFETY: no field is an address.
            unsafe impl WithoutResponse for abi::$body {}
        )+
    };
}

macro_rules! with_response {
    ($($body:ident),+ $(,)?) => {
        bodies!($($body),+);
        $(
            // SAFETY: no other field is an address.
            unsafe impl WithResponse for abi::$body {
                fn response(&mut self) -> &mut u64 {
                    &mut self.response
                }
            }
        )+
    };
}

bodies!(SetOption);
without_response!(Bind, ResolveIp, ResolveRoute, Connect, Listen, Accept, Reject, Disconnect, Notify);
with_response!(CreateId, DestroyId, LeaveMcast, Query, JoinMcast, GetEvent, MigrateId, InitQpAttr);

/// A command with its header, in the form for the kernel.
#[repr(C)]
pub(crate) struct Message<B> {
    header: Header,
    pub(crate) body: B,
}

impl<B: Body> Message<B> {
    fn new(body: B, out: u16) -> Self {
        Message { header: Header { cmd: B::COMMAND as u32, r#in: size_of::<B>() as u16, out }, body }
    }
}

/// The large commands. They are reused, so that a call writes only the fields that differ from the last call. Bytes
/// beyond the length of the private data are from earlier calls; the kernel does not send them.
pub(crate) struct Scratch {
    pub(crate) connect: Message<abi::Connect>,
    pub(crate) accept: Message<abi::Accept>,
    /// An answer, of which the kernel writes all bytes.
    pub(crate) qp_attr: abi::QpAttr,
    /// An answer with the device and the addresses of an id.
    pub(crate) place: [u8; abi::offset::ADDR_LEN],
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let (conn_param, ece) = (abi::ConnParam::NONE, abi::Ece { vendor_id: 0, attr_mod: 0 });
        Scratch {
            connect: Message::new(abi::Connect { conn_param, id: 0, reserved: 0, ece }, 0),
            accept: Message::new(abi::Accept { uid: 0, conn_param, id: 0, reserved: 0, ece }, 0),
            qp_attr: abi::QpAttr::default(),
            place: [0; abi::offset::ADDR_LEN],
        }
    }
}

/// A non-blocking event channel.
pub(crate) struct Channel {
    file: File,
    /// The adopted listener that the last request was for, by the key of its device then.
    pub(crate) listener: Option<IdKey>,
}

impl Channel {
    /// Opens the node.
    ///
    /// # Errors
    /// Names the part that is missing.
    pub(crate) fn open(node: &Node) -> Result<Self, OpenError> {
        Ok(Channel { file: node.open()?, listener: None })
    }

    /// Checks that write(2) works, by reading an event of a channel without ids.
    pub(crate) fn probe(&self) -> Result<(), OpenError> {
        match self.fd().event(&mut [0; abi::offset::EVENT_LEN]) {
            Ok(()) | Err(Errno(libc::EAGAIN)) => Ok(()),
            Err(errno) => Err(OpenError::WriteRefused(errno)),
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the descriptor for the commands of the channel and of its ids.
    pub(crate) fn fd(&self) -> ChannelFd {
        ChannelFd(self.file.as_raw_fd())
    }
}

/// The descriptor of an event channel, which it does not own. It makes the commands.
///
/// Each id keeps that of its channel, so that its commands look up no channel. The file is open as long as an id keeps
/// its descriptor: a channel is closed when no id is on it, or together with its ids
/// ([`Tables`](crate::tables::Tables), [`KernelHandle`](super::KernelHandle)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelFd(RawFd);

/// The place for the answer of a command that has none.
const NO_ANSWER: *mut [u8] = core::ptr::slice_from_raw_parts_mut(core::ptr::dangling_mut(), 0);

impl ChannelFd {
    /// Sends a command without an answer.
    pub(crate) fn send(self, body: impl WithoutResponse) -> Outcome {
        self.write_message(&Message::new(body, 0))
    }

    /// Sends a reused command without an answer.
    pub(crate) fn write_message<B: WithoutResponse>(self, message: &Message<B>) -> Outcome {
        // SAFETY: the body contains no address.
        unsafe { self.write(message, NO_ANSWER) }
    }

    /// Reads the next event (`RDMA_USER_CM_CMD_GET_EVENT`).
    pub(crate) fn event(self, into: &mut [u8; abi::offset::EVENT_LEN]) -> Outcome {
        let into: *mut [u8] = into;
        let response = into.cast::<u8>().expose_provenance() as u64;
        // SAFETY: the one address in the body is that of `into`. The kernel writes at most its length there, and only
        // during the call, in which `into` is borrowed.
        unsafe { self.write(&Message::new(abi::GetEvent { response }, abi::offset::EVENT_LEN as u16), into) }
    }

    /// Sends a command with an answer of at most the length of `into`.
    pub(crate) fn query(self, mut body: impl WithResponse, into: &mut [u8]) -> Outcome {
        let out = u16::try_from(into.len()).map_err(|_| Errno::EINVAL)?;
        let into: *mut [u8] = into;
        *body.response() = into.cast::<u8>().expose_provenance() as u64;
        // SAFETY: the one address in the body is that of `into`. The kernel writes at most `out` bytes there, and only
        // during the call, in which `into` is borrowed.
        unsafe { self.write(&Message::new(body, out), into) }
    }

    /// Sends a command and reads its answer into a structure.
    pub(crate) fn read<T: Plain>(self, body: impl WithResponse, answer: &mut T) -> Outcome {
        // SAFETY: the bytes are those of the structure, which has no padding, and every pattern is a value of it.
        let bytes = unsafe { core::slice::from_raw_parts_mut((&raw mut *answer).cast::<u8>(), size_of::<T>()) };
        self.query(body, bytes)
    }

    /// Sends a command with a one-number answer: a handle, or the number of reported events.
    pub(crate) fn number(self, body: impl WithResponse) -> Result<u32, Errno> {
        let mut answer = [0; 4];
        self.query(body, &mut answer)?;
        Ok(u32::from_ne_bytes(answer))
    }

    /// Queries the device of an id; `None` if it has none.
    ///
    /// # Errors
    /// The errno of the kernel: `ENODEV` or another one once the device is removed.
    pub(crate) fn device_of(self, id: u32, place: &mut [u8; abi::offset::ADDR_LEN]) -> Result<Option<Location>, Errno> {
        // Some kernels do not write the last field.
        place[abi::offset::ADDR_INDEX..].fill(0xff);
        self.query(abi::Query { response: 0, id, option: abi::QUERY_ADDR }, place)?;
        Ok(location(place))
    }

    /// Destroys an id (`RDMA_USER_CM_CMD_DESTROY_ID`).
    pub(crate) fn destroy(self, id: u32) -> Outcome {
        self.number(abi::DestroyId { response: 0, id, reserved: 0 }).map(drop)
    }

    /// `rdma_set_option`.
    pub(crate) fn set(self, id: u32, option: CmOption) -> Outcome {
        match option {
            CmOption::Tos(tos) => self.set_option(id, macros::RDMA_OPTION_ID_TOS, &[tos]),
            CmOption::ReuseAddr(on) => {
                self.set_option(id, macros::RDMA_OPTION_ID_REUSEADDR, &i32::from(on).to_ne_bytes())
            }
            CmOption::AfOnly(on) => self.set_option(id, macros::RDMA_OPTION_ID_AFONLY, &i32::from(on).to_ne_bytes()),
            CmOption::AckTimeout(power) => self.set_option(id, macros::RDMA_OPTION_ID_ACK_TIMEOUT, &[power]),
        }
    }

    /// `RDMA_USER_CM_CMD_SET_OPTION` of level `RDMA_OPTION_ID`.
    fn set_option(self, id: u32, name: i32, value: &[u8]) -> Outcome {
        let (optval, optlen) = (value.as_ptr().expose_provenance() as u64, value.len() as u32);
        let level = macros::RDMA_OPTION_ID as u32;
        // SAFETY: the kernel reads `optlen` bytes of the value during the call.
        unsafe {
            self.write(&Message::new(abi::SetOption { optval, id, level, optname: name as u32, optlen }, 0), NO_ANSWER)
        }
    }

    /// Moves an id from another channel to this one (`RDMA_USER_CM_CMD_MIGRATE_ID`).
    pub(crate) fn take(self, id: u32, from: ChannelFd) -> Outcome {
        let fd = unsigned(from.0);
        self.number(abi::MigrateId { response: 0, id, fd }).map(drop)
    }

    /// Sends a command. Its answer, if it has one, is written to `_into`, whose address is in the body: a pointer,
    /// because the kernel writes there during the call.
    ///
    /// # Errors
    /// The errno of write(2); `ENODATA` if the kernel has taken fewer bytes.
    ///
    /// # Safety
    /// Each address in the body is valid for the bytes that the command reads, or that the header allows it to write;
    /// `_into` for its length.
    unsafe fn write<B: Body>(self, message: &Message<B>, _into: *mut [u8]) -> Outcome {
        let len = size_of::<Message<B>>();
        #[cfg(feature = "scripted-kernel")]
        {
            // SAFETY: the message is initialized throughout, as below.
            let bytes = unsafe { core::slice::from_raw_parts((&raw const *message).cast::<u8>(), len) };
            // SAFETY: as the caller promises. Nothing else uses these bytes before the end of the call.
            if let Some(outcome) = script::answer(bytes, unsafe { &mut *_into }) {
                return outcome;
            }
        }
        // SAFETY: the message is initialized throughout: neither the header nor a body has padding, and the header's
        // size is a multiple of every alignment. The caller promises that the addresses in it are valid; all come from
        // `expose_provenance`.
        let written = unsafe { libc::write(self.0, (&raw const *message).cast(), len) };
        match usize::try_from(written) {
            Ok(written) if written == len => Ok(()),
            Ok(_) => Err(Errno(libc::ENODATA)),
            Err(_) => Err(errno::last()),
        }
    }
}
