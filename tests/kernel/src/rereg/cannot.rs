//! Checks on a kernel with a driver that cannot re-register.

use cmid_proto::Errno;
use cmid_proto::datapath::ProtectionDomain;
use cmid_proto::memory::{Code, MemoryFailure, MemoryStep, Valid};
use cmid_verbs::{Access, Change, Policy};

use crate::env::Pair;
use crate::fixture::{PAGE, READABLE, another_pd, facts, failure, peer_reads, region, remote, reregister};

/// All seven combinations of flags, with an unknown provider.
pub(crate) fn all_flags() {
    let mut pair = Pair::connected();
    let other = another_pd(&mut pair.server, pair.s.id);
    let mut mr = region(&pair.s.pd, 3, READABLE);
    let (before, users) = (facts(&mr), pair.s.pd.users());
    for flags in 1..8_u32 {
        let mut change = Change::default();
        if flags & 1 != 0 {
            change = change.to_buffer(vec![0; PAGE]);
        }
        if flags & 2 != 0 {
            change = change.to_pd(other.clone());
        }
        if flags & 4 != 0 {
            change = change.to_access(Access::LOCAL_WRITE);
        }
        assert_eq!(change.flags().bits(), flags);
        let done = reregister(&mut mr, change, Policy::default(), 1);
        let unsupported =
            MemoryFailure { step: MemoryStep::Reregister(Code::Cmd), errno: Errno::EOPNOTSUPP, valid: Valid::Old };
        assert_eq!(failure(&done), unsupported, "flags {flags}");
        assert_eq!(done.buffer.is_some(), flags & 1 != 0);
        assert_eq!((facts(&mr), pair.s.pd.users(), other.users()), (before, users, 0));
    }
    assert_eq!(peer_reads(&mut pair.c, remote(&mr)), Ok([3; 8]));
    assert_eq!(other.dealloc(), Ok(()));
}
