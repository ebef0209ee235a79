use super::*;
use crate::data::fault::Left;
use crate::data::library::Request;
use crate::fabric::config::Config;
use crate::index::{DeviceNo, HostNo, MrHandle, PdNo};
use crate::kernel::host::HostState;

const DEVICE: DeviceNo = DeviceNo { host: HostNo(0), index: 0, incarnation: 0 };
const RW: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ);

struct MemoryFixture {
    world: World,
    pd: PdNo,
    mr: MrHandle,
    keys: Keys,
    old: Stretch,
    new: Stretch,
}

impl MemoryFixture {
    /// Registers one page; the new range has two.
    fn new(config: Config) -> MemoryFixture {
        let mut world = World::new(config);
        world.hosts.push(HostState::new(&["10.0.0.1".parse().unwrap()]));
        let pd = world.ibv_alloc_pd(DEVICE).unwrap();
        let [old, new] = [4096, 8192].map(|len| world.memory.space.map(vec![0; len]));
        let (mr, keys) = world.ibv_reg_mr(DEVICE, pd, old, RW).unwrap();
        MemoryFixture { world, pd, mr, keys, old, new }
    }

    fn moved(&self) -> Request {
        Request { flags: Changes::TRANSLATION, pd: None, range: self.new, access: Access::empty() }
    }

    #[track_caller]
    fn is(&mut self, request: Request, code: Code, errno: Errno) {
        let reply = self.world.ibv_rereg_mr(DEVICE, self.mr, &request);
        assert_eq!(reply, Reply { code: code.as_raw(), errno, keys: self.keys });
    }

    fn fail(&mut self, fault: ReregFault) {
        self.world.hosts[0].faults.reregister.push_back(fault);
    }

    /// Asserts which of the two ranges are excluded from forked children, and which one the library and the device
    /// have.
    #[track_caller]
    fn has(&self, range: Stretch, kept: [bool; 2]) {
        assert_eq!([self.old, self.new].map(|range| self.world.library.fork.keeps(range)), kept);
        assert_eq!(self.world.library.mrs[&self.mr].range, range);
        assert_eq!(self.world.memory.mrs.get(&self.mr).unwrap().hardware.unwrap().range, range);
    }
}

fn with_fork() -> Config {
    Config { rereg: Rereg::All, fork: true, ..Config::default() }
}

#[test]
fn stages_2_to_4_belong_to_the_library() {
    let mut fixture = MemoryFixture::new(with_fork());
    let moved = fixture.moved();
    let here = Request { flags: Changes::empty(), ..moved };
    let nowhere = |range| Request { range, ..moved };
    for request in [
        Request { flags: Changes::from_bits_retain(8 | 1), ..moved },
        nowhere(Stretch { addr: 0, ..fixture.new }),
        nowhere(Stretch { len: 0, ..fixture.new }),
        Request { access: RW, ..here },
        Request { access: RW, ..moved },
    ] {
        fixture.is(request, Code::Input, Errno::EINVAL);
        fixture.has(fixture.old, [true, false]);
    }
    // Flags 0 pass the library's checks; an address without its flag is ignored.
    fixture.is(here, Code::Cmd, Errno::EINVAL);
    fixture.has(fixture.old, [true, false]);
}

#[test]
fn stage_5_keeps_the_new_range_or_fails() {
    let mut fixture = MemoryFixture::new(with_fork());
    let unmapped = Request { range: Stretch { addr: 4096, len: 1 }, ..fixture.moved() };
    fixture.is(unmapped, Code::DontForkNew, Errno::ENOMEM);
    fixture.fail(ReregFault::DontForkNew(Errno::EAGAIN));
    fixture.is(fixture.moved(), Code::DontForkNew, Errno::EAGAIN);
    fixture.has(fixture.old, [true, false]);
    fixture.is(fixture.moved(), Code::Done, Errno(0));
    fixture.has(fixture.new, [false, true]);
}

#[test]
fn stage_6_undoes_the_advice_unless_that_fails_too() {
    let left = Left::Old;
    for (fault, code, kept) in [
        (ReregFault::Cmd { errno: Errno::EIO, left }, Code::Cmd, false),
        (ReregFault::CmdAndDoForkNew { errno: Errno::EIO, left }, Code::CmdAndDoForkNew, true),
        (ReregFault::Undocumented { code: -9, errno: Errno::EIO, left }, Code::Unknown(-9), false),
    ] {
        let mut fixture = MemoryFixture::new(with_fork());
        fixture.fail(fault);
        fixture.is(fixture.moved(), code, Errno::EIO);
        fixture.has(fixture.old, [true, kept]);
    }
}

#[test]
fn stage_8_comes_when_all_is_done() {
    let mut fixture = MemoryFixture::new(with_fork());
    fixture.fail(ReregFault::DoForkOld(Errno::ENOMEM));
    fixture.is(fixture.moved(), Code::DoForkOld, Errno::ENOMEM);
    fixture.has(fixture.new, [true, true]);
    // Deregistration gives back the range that the library recorded for the MR.
    fixture.world.ibv_dereg_mr(DEVICE, fixture.mr).unwrap();
    assert_eq!([fixture.old, fixture.new].map(|range| fixture.world.library.fork.keeps(range)), [true, false]);
}

#[test]
fn overlapping_regions_keep_what_they_share() {
    let mut fixture = MemoryFixture::new(with_fork());
    let part = Stretch { addr: fixture.new.addr + 4096, len: 4096 };
    let (other, _) = fixture.world.ibv_reg_mr(DEVICE, fixture.pd, part, RW).unwrap();
    fixture.is(fixture.moved(), Code::Done, Errno(0));
    fixture.is(Request { range: fixture.old, ..fixture.moved() }, Code::Done, Errno(0));
    assert!(fixture.world.library.fork.keeps(part) && !fixture.world.library.fork.keeps(fixture.new));
    fixture.world.ibv_dereg_mr(DEVICE, other).unwrap();
    assert!(!fixture.world.library.fork.keeps(part));
}

#[test]
fn without_fork_support_its_stages_are_no_stages() {
    let mut fixture = MemoryFixture::new(Config { fork: false, ..with_fork() });
    fixture.fail(ReregFault::DontForkNew(Errno::EIO));
    fixture.is(fixture.moved(), Code::Done, Errno(0));
    fixture.has(fixture.new, [false, false]);
}

#[test]
fn a_provider_without_the_operation_is_a_failed_command() {
    let mut fixture = MemoryFixture::new(Config { rereg: Rereg::None, ..with_fork() });
    for flags in [Changes::empty(), Changes::TRANSLATION, Changes::PD, Changes::ACCESS, Changes::all()] {
        let request = Request { flags, pd: Some(fixture.pd), ..fixture.moved() };
        fixture.is(request, Code::Cmd, Errno::EOPNOTSUPP);
        fixture.has(fixture.old, [true, false]);
    }
}

#[test]
fn a_failed_registration_takes_its_advice_back() {
    let mut fixture = MemoryFixture::new(with_fork());
    fixture.world.hosts[0].faults.creations.push((Resource::Mr, Errno::ENOMEM));
    assert_eq!(fixture.world.ibv_reg_mr(DEVICE, fixture.pd, fixture.new, RW), Err(Errno::ENOMEM));
    fixture.has(fixture.old, [true, false]);
    // On-demand memory is not excluded from forked children.
    assert_eq!(fixture.world.ibv_reg_mr(DEVICE, fixture.pd, fixture.new, Access::ON_DEMAND), Err(Errno::EOPNOTSUPP));
    fixture.has(fixture.old, [true, false]);
}

#[test]
fn of_a_device_that_is_gone_nothing_can_be_destroyed_unless_that_is_allowed() {
    for (allowed, expected) in [(false, Err(Errno::EIO)), (true, Ok(()))] {
        let mut fixture = MemoryFixture::new(Config { destroy_after_removal: allowed, ..with_fork() });
        fixture.world.remove_device(DEVICE.host);
        fixture.is(fixture.moved(), Code::Cmd, Errno::EIO);
        assert_eq!(fixture.world.ibv_alloc_pd(DEVICE), Err(Errno::EIO));
        assert_eq!(fixture.world.ibv_reg_mr(DEVICE, fixture.pd, fixture.new, RW), Err(Errno::EIO));
        assert_eq!(fixture.world.ibv_dereg_mr(DEVICE, fixture.mr), expected);
        assert_eq!(fixture.world.ibv_dealloc_pd(DEVICE, fixture.pd), expected);
        assert_eq!(fixture.world.library.fork.keeps(fixture.old), !allowed);
    }
}
