//! The initiator on the simulator, where calls of the device for a block that is lent to the target fail.

#[allow(dead_code, reason = "the other tests use the rest")]
mod target;
#[allow(dead_code, reason = "the other tests use the rest")]
mod world;

use cmid_mio::proto::Errno;
use cmid_mio::sim::{Config, Resource};
use cmid_nvme::initiator::{On, Options};
use cmid_nvme::wire;
use target::BLOCK;
use world::{World, options};

#[test]
fn a_read_whose_block_does_not_come_back_is_sent_again() {
    // A window in place of one whose key the target keeps; or the registration of the block, which is made anew where
    // the device may write to it late. That is tried when the key is gone, and when the window ends.
    for (fails, keeps_keys) in [(Resource::Mw, true), (Resource::Mr, true), (Resource::Mr, false)] {
        for reactors in [0, 1] {
            let config = Config { copies_late: fails == Resource::Mr, ..Config::default() };
            let mut world = World::on(config, Options { buffers: 1, reactors, ..options(1) });
            world.turn_until(|world| world.initiator.controller().is_some());
            world.disk.keeps_keys = keeps_keys;
            world.disk.bytes[..8 * BLOCK].fill(7);
            let data = world.initiator.buffer(8 * BLOCK);
            assert!(data.is_registered());
            (0..2).for_each(|_| world.client.fail_next_creation(fails, Errno::ENOMEM));
            let data = world.run(On::Io, wire::read(1, 0, 8, data)).into_data().expect("a read").expect("its memory");
            let zeros = data.iter().filter(|&&byte| byte == 0).count();
            assert_eq!((data.len(), zeros), (8 * BLOCK, 0), "{fails:?} {keeps_keys} {reactors}: {:?}", world.happened);
        }
    }
}
