//! Memory regions, protection domains and memory windows on the simulated device.

mod bytes;
mod calls;
mod chaos;
mod copies;
mod cq_room;
mod given;
mod late;
mod outcomes;
mod pins;
mod reach;
mod removal;
mod shared;
mod window_qps;
pub(crate) mod windows;

use cmid_proto::datapath::prelude::*;
use cmid_proto::{Errno, ErrorWith, IdKey};
use cmid_sim::memory::{self, Fallback, MemoryError, MemoryReason, MrState, Policy, Provider};
use cmid_sim::{Access, Buffer, Config, Mr, Pd, Rereg, Reregistered};

use crate::common::Env;

/// Rights that include those of a peer.
const RW: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

const ANEW: Policy = Policy { fallback: Fallback::Anew, provider: Provider::Unknown };

/// A device, and two protection domains of it.
struct MemoryFixture {
    env: Env,
    id: IdKey,
    one: Pd,
    two: Pd,
}

impl MemoryFixture {
    fn new(config: Config) -> MemoryFixture {
        let mut env = Env::with(config);
        let id = env.client.bound(env.cc, "10.0.0.1:0");
        let [one, two] = [0; 2].map(|_| env.client.device.alloc_pd(id).unwrap());
        MemoryFixture { env, id, one, two }
    }

    /// A device that can re-register everything.
    fn able() -> MemoryFixture {
        MemoryFixture::new(Config { rereg: Rereg::All, ..Config::default() })
    }

    fn mr(&self) -> Mr {
        self.one.register(vec![1; 100], RW).unwrap()
    }

    /// Asserts the number of users of both domains, in the machines and at the device.
    #[track_caller]
    fn users(&self, expected: [u32; 2]) {
        let pds = [&self.one, &self.two];
        assert_eq!(pds.map(Pd::users), expected, "the machines");
        assert_eq!(pds.map(Pd::users_at_device), expected.map(Some), "the device");
        assert_eq!(self.env.fabric.counters().freed_in_use, 0);
    }
}

#[track_caller]
fn refused(error: MemoryError, reason: MemoryReason) {
    let MemoryError::Refused(refused) = error else { panic!("{error}") };
    assert_eq!(refused.reason, reason);
}

/// Asserts that the re-registration failed; returns the buffer that came back.
#[track_caller]
fn failed(ended: Reregistered, text: &str) -> Option<Buffer> {
    assert_eq!(ended.result.unwrap_err().to_string(), text);
    ended.buffer
}
