//! What is recorded of batches and completions.

use cmid_proto::Errno;
use cmid_proto::datapath::{BatchError, Completion};

/// The outcome of a batch.
pub(crate) fn batch(result: Result<usize, Stopped>) -> String {
    match result {
        Ok(posted) => format!("{posted} posted"),
        Err(Stopped { posted, errno }) => format!("{posted} posted, {errno}"),
    }
}

/// A batch was not posted, or only in part.
pub(crate) struct Stopped {
    pub(crate) posted: usize,
    pub(crate) errno: Errno,
}

impl From<Errno> for Stopped {
    fn from(errno: Errno) -> Self {
        Stopped { posted: 0, errno }
    }
}

impl From<BatchError> for Stopped {
    fn from(error: BatchError) -> Self {
        Stopped { posted: error.posted, errno: error.errno() }
    }
}

/// The fields that ibv_poll_cq(3) defines, and the opcode of a failed completion too.
pub(crate) fn text(completion: &Completion) -> String {
    let Completion { wr_id, status, opcode, byte_len, flags, .. } = *completion;
    if !completion.is_success() {
        return format!("{wr_id} {status} {opcode:?}");
    }
    let received =
        if opcode.is_recv() { format!(" {byte_len} bytes, {:?}, {flags:?}", completion.imm()) } else { String::new() };
    format!("{wr_id} {status} {opcode:?}{received}")
}
