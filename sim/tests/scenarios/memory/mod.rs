//! Memory regions, protection domains and memory windows on the simulated device.

mod bytes;
mod calls;
mod chaos;
mod copies;
mod cq_room;
mod outcomes;
mod pins;
mod reach;
mod removal;
mod window_qps;
mod windows;

use cmid_proto::{Errno, IdKey};
use cmid_sim::memory::{self, Error, Fallback, MrState, Policy, Provider, Valid, Why};
use cmid_sim::{Access, Config, Mr, Pd, Rereg, Reregistered};

use crate::common::Lab;

/// What a peer may do, too.
const RW: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

const ANEW: Policy = Policy { fallback: Fallback::Anew, provider: Provider::Unknown };

/// A device, and two protection domains of it.
struct Bench {
    lab: Lab,
    id: IdKey,
    one: Pd,
    two: Pd,
}

impl Bench {
    fn new(config: Config) -> Bench {
        let mut lab = Lab::with(config);
        let id = lab.client.id(lab.cc);
        lab.client.bind(id, "10.0.0.1:0").unwrap();
        let [one, two] = [0; 2].map(|_| lab.client.device.alloc_pd(id).unwrap());
        Bench { lab, id, one, two }
    }

    /// With a device that can re-register everything.
    fn able() -> Bench {
        Bench::new(Config { rereg: Rereg::All, ..Config::default() })
    }

    fn mr(&self) -> Mr {
        self.one.register(vec![1; 100], RW).unwrap()
    }

    /// What the machines count for both domains is this, and the device says the same.
    #[track_caller]
    fn users(&self, expected: [u32; 2]) {
        let pds = [&self.one, &self.two];
        assert_eq!(pds.map(Pd::users), expected, "the machines");
        assert_eq!(pds.map(Pd::users_at_device), expected.map(Some), "the device");
        assert_eq!(self.lab.fabric.counters().freed_in_use, 0);
    }
}

#[track_caller]
fn refused(error: Error, why: Why) {
    let Error::Refused(refused) = error else { panic!("{error}") };
    assert_eq!(refused.why, why);
}

/// The re-registration failed; returns what came back.
#[track_caller]
fn failed(ended: Reregistered, text: &str) -> Option<Vec<u8>> {
    assert_eq!(ended.result.unwrap_err().to_string(), text);
    ended.buffer
}

/// Takes an MR down that may be in whatever state.
#[track_caller]
fn returned(mr: Mr) -> memory::Returned<Vec<u8>> {
    mr.deregister().map_err(|(mr, error)| (mr.state(), error)).unwrap()
}
