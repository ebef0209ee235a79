//! Destruction of ids and channels, and migration: `rdma_destroy_id`, closing a channel, `rdma_migrate_id`.

use cmid_proto::Errno;

use crate::fabric::world::World;
use crate::index::{FileNo, IdNo};

impl World {
    /// `rdma_destroy_id`: sends the message that the protocol state requires, and drops unread events. For a listener
    /// this includes the connections of unread requests (`ucma_destroy_private_ctx`).
    pub(crate) fn destroy_id(&mut self, no: IdNo) {
        self.release_port(no);
        self.destroy_conn(no);
        self.iw_destroy(no);
        self.cancel_joins(no);
        let Some(id) = self.ids.remove(&no) else { return };
        if let Some(lookup) = id.lookup {
            self.timers.cancel(lookup);
        }
        if let Some(qp) = id.qp {
            self.detach_qp(qp);
        }
        let Some(file) = self.files.get_mut(&id.file) else { return };
        file.ids.remove(&id.turn);
        let unread = file.take_of(no);
        file.settle();
        for child in unread.iter().filter_map(|event| event.child) {
            self.destroy_id(child);
        }
    }

    /// Closes a channel and destroys every id on it (`ucma_close`).
    pub(crate) fn close_file(&mut self, no: FileNo) {
        while let Some((_, id)) = self.files.get_mut(&no).and_then(|file| file.ids.pop_first()) {
            self.destroy_id(id);
        }
        self.files.remove(&no);
    }

    /// `rdma_migrate_id`: moves the id's unread events to the end of the target's queue, in order
    /// (`ucma_migrate_id`). Not those of unread CONNECT_REQUESTs: they are lost.
    pub(crate) fn migrate(&mut self, no: IdNo, from: FileNo, to: FileNo) -> Result<(), Errno> {
        if self.id(no)?.file != from {
            return Err(Errno::EINVAL);
        }
        let wake = self.config.wake_on_migrate;
        let source = self.files.get_mut(&from).ok_or(Errno::ENOENT)?;
        let moved = source.take_of(no);
        let turn = self.next_turn();
        let id = self.id(no)?;
        let before = std::mem::replace(&mut id.turn, turn);
        id.file = to;
        if let Some(source) = self.files.get_mut(&from) {
            source.ids.remove(&before);
            source.settle();
        }
        if let Some(target) = self.files.get_mut(&to) {
            target.ids.insert(turn, no);
            target.push_moved(moved, wake);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cmid_proto::{ConnParam, IdKey, PortSpace, Time};

    use super::*;
    use crate::fabric::config::Config;
    use crate::index::HostNo;
    use crate::kernel::host::HostState;

    const HERE: HostNo = HostNo(0);

    fn at_rest(world: &World) -> bool {
        let host = &world.hosts[0];
        world.comms.is_empty()
            && world.ids.is_empty()
            && world.timers.next_due().is_none()
            && host.remote_ids.is_empty()
            && host.remote_qps.is_empty()
            && host.ports.owners(PortSpace::Tcp, 7).next().is_none()
    }

    /// Destroys all objects at each step of a connection, and asserts that nothing remains.
    #[test]
    fn nothing_is_left_of_what_is_destroyed() {
        for moments in 0..9 {
            let mut world = World::new(Config::default());
            world.hosts.push(HostState::new(&["10.0.0.1".parse().unwrap()]));
            let file = world.open_file().unwrap();
            let listener = world.create_id(HERE, file, PortSpace::Tcp).unwrap();
            let client = world.create_id(HERE, file, PortSpace::Tcp).unwrap();
            for (no, key) in [(listener, 1), (client, 2)] {
                world.id(no).unwrap().key = IdKey::from_parts(0, key, 1);
            }
            let addr = "10.0.0.1:7".parse().unwrap();
            world.bind(listener, addr).unwrap();
            world.listen(listener, 1).unwrap();
            let param = |qp_num| ConnParam { qp_num, ..ConnParam::default() };
            let settle = |world: &mut World| {
                world.advance_to(Time(world.now.0 + 1_000_000));
                world.fetch(file, IdKey::from_parts(0, 0, 3).unwrap()).and_then(|event| event.child())
            };
            let mut child = None;
            for moment in 0..moments {
                match moment {
                    0 => world.resolve_addr(client, None, addr, 100).unwrap(),
                    1 => world.resolve_route(client, 100).unwrap(),
                    2 => {
                        world.connect(client, &param(1), &[]).unwrap();
                        child = settle(&mut world);
                    }
                    3 => world.accept(child.unwrap(), &param(2), &[]).unwrap(),
                    4 => world.establish(client).unwrap(),
                    5 => world.disconnect(client).unwrap(),
                    6 => world.disconnect(child.unwrap()).unwrap(),
                    _ => {}
                }
                settle(&mut world);
            }
            if moments % 2 == 0 {
                world.close_file(file);
            } else {
                for no in [client, listener].into_iter().chain(child) {
                    world.destroy_id(no);
                }
            }
            // Messages of the destruction arrive without a receiver.
            world.advance_to(Time(world.now.0 + 1_000_000));
            assert!(at_rest(&world), "after {moments} steps: {world:?}");
        }
    }
}
