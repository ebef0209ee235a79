use super::*;
use crate::data::fault::Left;
use crate::data::library::Request;
use crate::fabric::config::Config;
use crate::index::{DeviceNo, HostNo, MrHandle, PdNo};
use crate::kernel::host::HostState;

const DEVICE: DeviceNo = DeviceNo { host: HostNo(0), incarnation: 0 };
const RW: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ);

struct Bench {
    world: World,
    pd: PdNo,
    mr: MrHandle,
    keys: Keys,
    old: Stretch,
    new: Stretch,
}

impl Bench {
    /// One page is registered, two are to be.
    fn new(config: Config) -> Bench {
        let mut world = World::new(config);
        world.hosts.push(HostState::new(&["10.0.0.1".parse().unwrap()]));
        let pd = world.ibv_alloc_pd(DEVICE).unwrap();
        let [old, new] = [4096, 8192].map(|len| world.memory.space.lend(vec![0; len]).stretch());
        let (mr, keys) = world.ibv_reg_mr(DEVICE, pd, old, RW).unwrap();
        Bench { world, pd, mr, keys, old, new }
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

    /// Which of both ranges are kept from children of a fork, and which one the library and the device have.
    #[track_caller]
    fn has(&self, range: Stretch, kept: [bool; 2]) {
        assert_eq!([self.old, self.new].map(|range| self.world.library.fork.keeps(range)), kept);
        assert_eq!(self.world.library.mrs[&self.mr].range, range);
        assert_eq!(self.world.memory.mrs[&self.mr].hardware.unwrap().range, range);
    }
}

fn with_fork() -> Config {
    Config { rereg: Rereg::All, fork: true, ..Config::default() }
}

#[test]
fn stages_2_to_4_are_the_librarys() {
    let mut bench = Bench::new(with_fork());
    let moved = bench.moved();
    let here = Request { flags: Changes::empty(), ..moved };
    let nowhere = |range| Request { range, ..moved };
    for request in [
        Request { flags: Changes::from_bits_retain(8 | 1), ..moved },
        nowhere(Stretch { addr: 0, ..bench.new }),
        nowhere(Stretch { len: 0, ..bench.new }),
        Request { access: RW, ..here },
        Request { access: RW, ..moved },
    ] {
        bench.is(request, Code::Input, Errno::EINVAL);
        bench.has(bench.old, [true, false]);
    }
    // Flags 0 pass the library; an address without its flag is not looked at.
    bench.is(here, Code::Cmd, Errno::EINVAL);
    bench.has(bench.old, [true, false]);
}

#[test]
fn stage_5_keeps_the_new_range_or_fails() {
    let mut bench = Bench::new(with_fork());
    let unmapped = Request { range: Stretch { addr: 4096, len: 1 }, ..bench.moved() };
    bench.is(unmapped, Code::DontForkNew, Errno::ENOMEM);
    bench.fail(ReregFault::DontForkNew(Errno::EAGAIN));
    bench.is(bench.moved(), Code::DontForkNew, Errno::EAGAIN);
    bench.has(bench.old, [true, false]);
    bench.is(bench.moved(), Code::Done, Errno(0));
    bench.has(bench.new, [false, true]);
}

#[test]
fn stage_6_undoes_the_advice_unless_that_fails_too() {
    let left = Left::Old;
    for (fault, code, kept) in [
        (ReregFault::Cmd { errno: Errno::EIO, left }, Code::Cmd, false),
        (ReregFault::CmdAndDoForkNew { errno: Errno::EIO, left }, Code::CmdAndDoForkNew, true),
        (ReregFault::Undocumented { code: -9, errno: Errno::EIO, left }, Code::Unknown(-9), false),
    ] {
        let mut bench = Bench::new(with_fork());
        bench.fail(fault);
        bench.is(bench.moved(), code, Errno::EIO);
        bench.has(bench.old, [true, kept]);
    }
}

#[test]
fn stage_8_comes_when_all_is_done() {
    let mut bench = Bench::new(with_fork());
    bench.fail(ReregFault::DoForkOld(Errno::ENOMEM));
    bench.is(bench.moved(), Code::DoForkOld, Errno::ENOMEM);
    bench.has(bench.new, [true, true]);
    // The end gives back what the library takes for the MR's range.
    bench.world.ibv_dereg_mr(DEVICE, bench.mr).unwrap();
    assert_eq!([bench.old, bench.new].map(|range| bench.world.library.fork.keeps(range)), [true, false]);
}

#[test]
fn overlapping_regions_keep_what_they_share() {
    let mut bench = Bench::new(with_fork());
    let part = Stretch { addr: bench.new.addr + 4096, len: 4096 };
    let (other, _) = bench.world.ibv_reg_mr(DEVICE, bench.pd, part, RW).unwrap();
    bench.is(bench.moved(), Code::Done, Errno(0));
    bench.is(Request { range: bench.old, ..bench.moved() }, Code::Done, Errno(0));
    assert!(bench.world.library.fork.keeps(part) && !bench.world.library.fork.keeps(bench.new));
    bench.world.ibv_dereg_mr(DEVICE, other).unwrap();
    assert!(!bench.world.library.fork.keeps(part));
}

#[test]
fn without_fork_support_its_stages_are_no_stages() {
    let mut bench = Bench::new(Config { fork: false, ..with_fork() });
    bench.fail(ReregFault::DontForkNew(Errno::EIO));
    bench.is(bench.moved(), Code::Done, Errno(0));
    bench.has(bench.new, [false, false]);
}

#[test]
fn a_provider_without_the_operation_is_a_failed_command() {
    let mut bench = Bench::new(Config { rereg: Rereg::None, ..with_fork() });
    for flags in [Changes::empty(), Changes::TRANSLATION, Changes::PD, Changes::ACCESS, Changes::all()] {
        let request = Request { flags, pd: Some(bench.pd), ..bench.moved() };
        bench.is(request, Code::Cmd, Errno::EOPNOTSUPP);
        bench.has(bench.old, [true, false]);
    }
}

#[test]
fn a_failed_registration_takes_its_advice_back() {
    let mut bench = Bench::new(with_fork());
    bench.world.hosts[0].faults.register.push_back(Errno::ENOMEM);
    assert_eq!(bench.world.ibv_reg_mr(DEVICE, bench.pd, bench.new, RW), Err(Errno::ENOMEM));
    bench.has(bench.old, [true, false]);
    // Not kept from children in the first place.
    assert_eq!(bench.world.ibv_reg_mr(DEVICE, bench.pd, bench.new, Access::ON_DEMAND), Err(Errno::EOPNOTSUPP));
    bench.has(bench.old, [true, false]);
}

#[test]
fn of_a_device_that_is_gone_nothing_can_be_destroyed_unless_that_is_allowed() {
    for (allowed, expected) in [(false, Err(Errno::EIO)), (true, Ok(()))] {
        let mut bench = Bench::new(Config { destroy_after_removal: allowed, ..with_fork() });
        bench.world.remove_device(DEVICE.host);
        bench.is(bench.moved(), Code::Cmd, Errno::EIO);
        assert_eq!(bench.world.ibv_alloc_pd(DEVICE), Err(Errno::EIO));
        assert_eq!(bench.world.ibv_reg_mr(DEVICE, bench.pd, bench.new, RW), Err(Errno::EIO));
        assert_eq!(bench.world.ibv_dereg_mr(DEVICE, bench.mr), expected);
        assert_eq!(bench.world.ibv_dealloc_pd(DEVICE, bench.pd), expected);
        assert_eq!(bench.world.library.fork.keeps(bench.old), !allowed);
    }
}
