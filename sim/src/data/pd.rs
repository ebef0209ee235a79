//! Protection domains.

use cmid_proto::Errno;

use crate::data::memory::PdNo;
use crate::data::mr::{Access, Mr};
use crate::fabric::Fabric;
use crate::host::HostNo;

/// A protection domain of one host's device (ibv_alloc_pd(3)).
#[derive(Debug)]
pub struct Pd {
    pub(crate) fabric: Fabric,
    pub(crate) host: HostNo,
    pub(crate) no: PdNo,
}

impl Pd {
    /// Registers a buffer, which belongs to the region until [`Mr::into_buffer`] (ibv_reg_mr(3)).
    ///
    /// # Errors
    /// `EINVAL` for an empty buffer, and for remote write without local write.
    pub fn register(&self, buffer: Vec<u8>, access: Access) -> Result<Mr, Errno> {
        let len = buffer.len();
        let (key, addr) = self.fabric.with(|world| world.memory.register(self.host, self.no, buffer, access))?;
        Ok(Mr { fabric: self.fabric.clone(), key, addr, len })
    }
}
