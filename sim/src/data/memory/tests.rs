use super::*;
use crate::index::{HostNo, MrHandle, PdNo, QpNo};

const HOST: HostNo = HostNo(0);
const RW: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

struct MemoryFixture {
    config: Config,
    memory: Memory,
    pd: PdNo,
    other: PdNo,
    page: Stretch,
}

impl MemoryFixture {
    fn new(config: Config) -> MemoryFixture {
        let mut memory = Memory::default();
        let (pd, other) = (memory.alloc_pd(HOST), memory.alloc_pd(HOST));
        let page = memory.space.map(vec![7; 4096]);
        MemoryFixture { config, memory, pd, other, page }
    }

    fn reg(&mut self, access: Access) -> Result<MrHandle, Errno> {
        self.reg_at(self.pd, self.page, access)
    }

    fn reg_at(&mut self, pd: PdNo, range: Stretch, access: Access) -> Result<MrHandle, Errno> {
        self.memory.reg_mr(&self.config, HOST, pd, range, access).map(|(handle, _)| handle)
    }

    fn rereg(&mut self, handle: MrHandle, request: Request) -> Result<(), Errno> {
        self.memory.rereg_mr(&self.config, HOST, handle, &request, || None).map(drop)
    }

    fn users(&self) -> [Option<u32>; 2] {
        [self.pd, self.other].map(|pd| self.memory.pd_users(pd))
    }
}

fn nothing() -> Request {
    Request { flags: Changes::empty(), pd: None, range: Stretch { addr: 0, len: 0 }, access: Access::empty() }
}

fn to_pd(pd: PdNo) -> Request {
    Request { flags: Changes::PD, pd: Some(pd), ..nothing() }
}

fn to_access(access: Access) -> Request {
    Request { flags: Changes::ACCESS, access, ..nothing() }
}

fn to_range(range: Stretch) -> Request {
    Request { flags: Changes::TRANSLATION, range, ..nothing() }
}

#[test]
fn a_registration_is_checked_in_the_kernels_order() {
    let mut fixture = MemoryFixture::new(Config::default());
    let nowhere = Stretch { addr: 0, len: 1 };
    let (empty, no_pd) = (Stretch { len: 0, ..fixture.page }, PdNo(99));
    let bits = Access::from_bits_retain;
    // Each case also contains the errors of all later cases.
    for (expected, pd, range, access) in [
        (Errno::EINVAL, no_pd, nowhere, Access::REMOTE_WRITE | Access::HUGETLB),
        (Errno::EINVAL, no_pd, nowhere, Access::REMOTE_ATOMIC),
        (Errno::EINVAL, no_pd, nowhere, bits(1 << 10) | Access::ON_DEMAND),
        (Errno::EOPNOTSUPP, no_pd, nowhere, Access::ON_DEMAND | Access::HUGETLB),
        (Errno::ENOENT, no_pd, nowhere, Access::HUGETLB),
        (Errno::EOPNOTSUPP, fixture.pd, nowhere, Access::HUGETLB),
        (Errno::EOPNOTSUPP, fixture.pd, nowhere, bits(ZERO_BASED)),
        (Errno::EINVAL, fixture.pd, empty, Access::empty()),
        (Errno::EFAULT, fixture.pd, nowhere, Access::empty()),
    ] {
        assert_eq!(fixture.reg_at(pd, range, access), Err(expected), "{access:?}");
    }
    assert_eq!(fixture.users(), [Some(0), Some(0)]);
    for access in [Access::empty(), RW, Access::FLUSH_GLOBAL, Access::RELAXED_ORDERING, bits(1 << 29)] {
        assert!(fixture.reg(access).is_ok(), "{access:?}");
    }
    assert_eq!(fixture.users(), [Some(5), Some(0)]);
}

#[test]
fn linux_6_1_knows_no_flushes() {
    let mut fixture = MemoryFixture::new(Config { flavour: Flavour::Linux6_1, ..Config::default() });
    assert_eq!(fixture.reg(Access::FLUSH_GLOBAL), Err(Errno::EINVAL));
    assert!(fixture.reg(Access::empty()).is_ok());
}

#[test]
fn pinned_pages_are_limited() {
    let mut fixture = MemoryFixture::new(Config { lock_limit: Some(3 * 4096), rereg: Rereg::All, ..Config::default() });
    let two = fixture.memory.space.map(vec![0; 4097]);
    let first = fixture.reg(RW).unwrap();
    assert!(fixture.reg_at(fixture.pd, two, RW).is_ok());
    assert_eq!(fixture.reg(RW), Err(Errno::ENOMEM));
    // The limit is checked before the address.
    assert_eq!(fixture.reg_at(fixture.pd, Stretch { addr: 0, len: 1 }, RW), Err(Errno::ENOMEM));
    // During the move both buffers are pinned.
    assert_eq!(fixture.rereg(first, to_range(two)), Err(Errno::ENOMEM));
    fixture.memory.dereg_mr(HOST, first).unwrap();
    assert!(fixture.reg(RW).is_ok());
}

#[test]
fn a_re_registration_is_checked_in_the_kernels_order() {
    let mut fixture = MemoryFixture::new(Config { rereg: Rereg::PdAccess, ..Config::default() });
    let (mr, none, no_pd) = (fixture.reg(Access::empty()).unwrap(), MrHandle(99), Some(PdNo(99)));
    let unknown = Request { flags: Changes::from_bits_retain(8), ..nothing() };
    let bad = |access| Request { flags: Changes::ACCESS | Changes::PD, pd: no_pd, access, ..nothing() };
    for (expected, handle, request) in [
        (Errno::EINVAL, none, nothing()),
        (Errno::EOPNOTSUPP, none, unknown),
        (Errno::ENOENT, none, bad(Access::REMOTE_WRITE)),
        (Errno::EINVAL, mr, bad(Access::REMOTE_WRITE)),
        (Errno::EOPNOTSUPP, mr, bad(Access::ON_DEMAND)),
        (Errno::ENOENT, mr, to_pd(PdNo(99))),
        (Errno::ENOENT, mr, Request { pd: None, ..to_pd(fixture.pd) }),
        (Errno::EOPNOTSUPP, mr, to_range(fixture.page)),
        (Errno::EOPNOTSUPP, mr, to_access(Access::HUGETLB)),
        // The pages are pinned for reading only.
        (Errno::EACCES, mr, to_access(Access::LOCAL_WRITE)),
    ] {
        assert_eq!(fixture.rereg(handle, request), Err(expected), "{request:?}");
    }
    assert_eq!(fixture.users(), [Some(1), Some(0)]);
    assert_eq!(fixture.rereg(mr, to_access(Access::REMOTE_READ)), Ok(()));
    fixture.config.flavour = Flavour::Linux6_1;
    assert_eq!(fixture.rereg(mr, nothing()), Err(Errno::EOPNOTSUPP));
}

#[test]
fn a_pd_of_another_host_is_none() {
    let mut fixture = MemoryFixture::new(Config { rereg: Rereg::All, ..Config::default() });
    let far = fixture.memory.alloc_pd(HostNo(1));
    assert_eq!(fixture.reg_at(far, fixture.page, RW), Err(Errno::ENOENT));
    let mr = fixture.reg(RW).unwrap();
    assert_eq!(fixture.rereg(mr, to_pd(far)), Err(Errno::ENOENT));
}

#[test]
fn remote_access_needs_bounds_rights_and_the_same_domain() {
    let mut fixture = MemoryFixture::new(Config::default());
    let mr = fixture.reg(Access::REMOTE_READ).unwrap();
    let (key, addr) = (fixture.memory.mrs.get(&mr).unwrap().keys.rkey, fixture.page.addr);
    let (pd, other) = (fixture.pd, fixture.other);
    let keyed_range = |addr, len| KeyedRange { addr, key, len };
    let of = |host| QpNo { host, num: 17 };
    let mut reads =
        |host, pd, keyed_range| fixture.memory.for_remote(of(host), pd, keyed_range, Access::REMOTE_READ).is_some();
    assert!(reads(HOST, pd, keyed_range(addr + 4088, 8)));
    assert!(!reads(HOST, pd, keyed_range(addr + 4088, 9)));
    assert!(!reads(HOST, pd, keyed_range(addr - 1, 2)));
    assert!(!reads(HOST, pd, keyed_range(addr, usize::MAX)));
    assert!(!reads(HOST, other, keyed_range(addr, 1)));
    assert!(!reads(HostNo(1), pd, keyed_range(addr, 1)));
    assert!(!reads(HOST, pd, KeyedRange { key: key + 1, ..keyed_range(addr, 1) }));
    assert!(fixture.memory.for_remote(of(HOST), pd, keyed_range(addr, 1), Access::REMOTE_WRITE).is_none());
    assert!(fixture.memory.for_local_read(pd, keyed_range(addr, 4096)).is_some());
    assert!(fixture.memory.for_local_read(other, keyed_range(addr, 1)).is_none());
    assert!(fixture.memory.for_local_write(pd, keyed_range(addr, 1)).is_none());
    // Empty ranges need no check.
    let nothing = KeyedRange { addr: 0, key: 0, len: 0 };
    assert!(fixture.memory.for_remote(of(HOST), other, nothing, RW).is_some());
    assert!(fixture.memory.for_local_read(other, nothing).is_some());
    assert!(fixture.memory.for_local_write(other, nothing).is_some());
}
