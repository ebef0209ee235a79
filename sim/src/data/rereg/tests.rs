use super::*;
use crate::data::fault::Left;
use crate::fabric::config::Config;
use crate::index::HostNo;
use crate::kernel::host::HostState;

const DEVICE: DeviceNo = DeviceNo { host: HostNo(0), index: 0, incarnation: 0 };
const RW: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ);
const IO: Errno = Errno::EIO;

struct MemoryFixture {
    world: World,
    pd: PdNo,
    mr: MrHandle,
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
        let (mr, _) = world.ibv_reg_mr(DEVICE, pd, old, RW).unwrap();
        MemoryFixture { world, pd, mr, old, new }
    }

    fn able() -> MemoryFixture {
        MemoryFixture::new(Config { rereg: Rereg::All, ..Config::default() })
    }

    fn moved(&self) -> Request {
        Request { flags: Changes::TRANSLATION, pd: None, range: self.new, access: Access::empty() }
    }

    #[track_caller]
    fn is(&mut self, request: Request, code: Code, errno: Errno) {
        let reply = self.world.ibv_rereg_mr(DEVICE, self.mr, &request);
        assert_eq!((Code::from_raw(reply.code), reply.errno), (code, errno));
    }

    /// Asserts which of the two ranges the device has.
    #[track_caller]
    fn has(&self, range: Stretch) {
        assert_eq!(self.world.memory.mrs.get(&self.mr).unwrap().hardware.unwrap().range, range);
    }
}

#[test]
fn stages_2_to_4_belong_to_the_library() {
    let mut fixture = MemoryFixture::able();
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
    }
    // Flags 0 pass the library's checks; an address without its flag is ignored.
    fixture.is(here, Code::Cmd, Errno::EINVAL);
    fixture.has(fixture.old);
}

/// Those of the advice about forks and of its undoing only of a change of the translation.
#[test]
fn a_fault_waits_for_its_stage() {
    for (code, is_of_translation, is_moved) in [
        (Code::DontForkNew, true, false),
        (Code::Cmd, false, false),
        (Code::CmdAndDoForkNew, true, false),
        (Code::Unknown(-9), false, false),
        (Code::DoForkOld, true, true),
    ] {
        let mut fixture = MemoryFixture::able();
        fixture.world.hosts[0].faults.reregister.push_back(ReregFault { code, errno: IO, left: Left::Old });
        if is_of_translation {
            let same = Request { flags: Changes::ACCESS, access: RW, ..fixture.moved() };
            fixture.is(same, Code::Done, Errno(0));
        }
        fixture.is(fixture.moved(), code, IO);
        fixture.has(if is_moved { fixture.new } else { fixture.old });
        fixture.is(fixture.moved(), Code::Done, Errno(0));
    }
}

#[test]
fn a_provider_without_the_operation_is_a_failed_command() {
    let mut fixture = MemoryFixture::new(Config::default());
    for flags in [Changes::empty(), Changes::TRANSLATION, Changes::PD, Changes::ACCESS, Changes::all()] {
        let request = Request { flags, pd: Some(fixture.pd), ..fixture.moved() };
        fixture.is(request, Code::Cmd, Errno::EOPNOTSUPP);
    }
}

#[test]
fn of_a_device_that_is_gone_nothing_can_be_destroyed_unless_that_is_allowed() {
    for (destroy_after_removal, expected) in [(false, Err(IO)), (true, Ok(()))] {
        let mut fixture = MemoryFixture::new(Config { destroy_after_removal, rereg: Rereg::All, ..Config::default() });
        fixture.world.remove_device(DEVICE.host);
        fixture.is(fixture.moved(), Code::Cmd, IO);
        assert_eq!(fixture.world.ibv_alloc_pd(DEVICE), Err(IO));
        assert_eq!(fixture.world.ibv_reg_mr(DEVICE, fixture.pd, fixture.new, RW), Err(IO));
        assert_eq!(fixture.world.ibv_dereg_mr(DEVICE, fixture.mr), expected);
        assert_eq!(fixture.world.ibv_dealloc_pd(DEVICE, fixture.pd), expected);
    }
}
