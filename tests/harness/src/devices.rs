//! The devices of the test suites.

use std::fmt::Debug;

use cmid_proto::ErrorWith;
use cmid_proto::datapath::{Attaching, Caps, CreateError, Memory, Reregistered, prelude::*};
use cmid_proto::memory::{Access, Change, MemoryError, Policy, Returned, Way};

/// The number of completions of a CQ, and of work requests of each half of a QP.
pub(crate) const CQ_DEPTH: u32 = 16;
const QP_DEPTH: u32 = 8;

/// A device with objects that can be printed and moved to threads.
pub trait TestDevice:
    DataPath<Pd: TestPd, Mr: TestMr, Mw: MemoryWindow + Debug, Cq: Debug, Qp: Debug, Ah: Debug>
{
}

impl<D: ?Sized> TestDevice for D where D: DataPath<Pd: TestPd, Mr: TestMr, Mw: Debug, Cq: Debug, Qp: Debug, Ah: Debug> {}

/// Creates a QP with its own CQ on an id.
///
/// # Errors
/// The error of the device.
pub fn make_qp<D: DataPath + ?Sized>(
    device: &mut D,
    attaching: Attaching<'_>,
    pd: &D::Pd,
    caps: Caps,
) -> Result<(D::Qp, D::Cq), CreateError> {
    let cq = device.create_cq(attaching.id(), CQ_DEPTH)?;
    let qp = device.create_qp(attaching, pd, &cq, &cq, caps)?;
    Ok((qp, cq))
}

/// The capacities of the QPs of most tests.
#[must_use]
pub fn test_caps() -> Caps {
    Caps { max_send_wr: QP_DEPTH, max_recv_wr: QP_DEPTH, ..Caps::default() }
}

/// A protection domain for tests.
pub trait TestPd: ProtectionDomain<Mr: TestMr<Pd = Self>> + Debug {
    /// Returns the number of users of the PD that the device counts; `None` if the device does not report it.
    fn users_at_device(&self) -> Option<u32>;

    /// [`ProtectionDomain::register`] with a `Vec`.
    ///
    /// # Errors
    /// The errors of that method.
    fn register_vec(&self, buffer: Vec<u8>, access: Access) -> Result<Self::Mr, ErrorWith<Vec<u8>, MemoryError>> {
        self.register(buffer, access).map_err(|failed| ErrorWith::new(bytes(failed.given), failed.error))
    }
}

impl TestPd for cmid_sim::Pd {
    fn users_at_device(&self) -> Option<u32> {
        self.users_at_device()
    }
}

#[cfg(feature = "verbs")]
impl TestPd for cmid_verbs::Pd {
    fn users_at_device(&self) -> Option<u32> {
        None
    }
}

/// Registered memory for tests. Its buffers are `Vec`s.
pub trait TestMr: MemoryRegion + Debug {
    /// [`MemoryRegion::reregister`] with a `Vec`.
    fn reregister_vec(
        &mut self,
        change: Change<Self::Pd, Vec<u8>>,
        policy: Policy,
    ) -> (Result<Way, MemoryError>, Option<Vec<u8>>) {
        let change = Change { buffer: change.buffer.map(Into::into), pd: change.pd, access: change.access };
        let Reregistered { result, buffer } = self.reregister(change, policy);
        (result, buffer.map(bytes))
    }

    /// [`MemoryRegion::deregister`] with a `Vec`.
    ///
    /// # Errors
    /// The errors of that method.
    fn deregister_vec(self) -> Result<Returned<Vec<u8>>, ErrorWith<Self, MemoryError>> {
        let Returned { buffer, other } = self.deregister()?;
        Ok(Returned { buffer: bytes(buffer), other: other.map(bytes) })
    }
}

impl<M: MemoryRegion + Debug> TestMr for M {}

/// Converts a buffer to a `Vec`.
fn bytes(buffer: impl Memory) -> Vec<u8> {
    // Every buffer here is a `Vec`, so the default is not used; it would make the test fail.
    buffer.into_vec().unwrap_or_default()
}
