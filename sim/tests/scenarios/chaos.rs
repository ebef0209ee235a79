//! Random calls in random order. Nothing panics, and the fabric has no timers left when all objects are destroyed.

use std::time::Duration;

use cmid_proto::datapath::{Attaching, SendWr, prelude::*};
use cmid_proto::{Call, ChannelKey, CmOption, ConnParam, Datagram, Device, Ece, Errno, GroupKey, IdKey, PortSpace};
use cmid_sim::{Access, Caps, Config, Cq, Mr, Pd, Qp, To};
use fastrand::Rng;

use crate::common::{Env, Side, ip};

/// A QP in any state, and the destination of datagrams from an event.
struct Peer {
    pd: Pd,
    _cq: Cq,
    qp: Qp,
    mr: Mr,
    to: Option<Datagram>,
}

struct Actor {
    side: Side,
    ids: Vec<IdKey>,
    channels: Vec<ChannelKey>,
    groups: Vec<(IdKey, GroupKey)>,
    stations: Vec<Peer>,
}

const GROUP: &str = "239.1.2.3:0";

const ADDRESSES: [&str; 7] =
    ["10.0.0.1:7", "10.0.0.2:7", "0.0.0.0:7", "172.16.0.1:7", "127.0.0.1:0", "[::]:0", "10.0.0.77:7"];

impl Actor {
    fn new(side: Side) -> Actor {
        Actor { side, ids: Vec::new(), channels: Vec::new(), groups: Vec::new(), stations: Vec::new() }
    }

    fn act(&mut self, dice: &mut Rng) {
        if self.channels.is_empty() {
            return self.channels.push(self.side.channel());
        }
        let [channel, other] = [(); 2].map(|()| self.channels[dice.usize(..self.channels.len())]);
        let choice = dice.u32(..90);
        if choice == 0 && self.channels.len() < 4 {
            return self.channels.push(self.side.channel());
        }
        if choice == 1 && dice.u32(..10) == 0 {
            self.side.call(Call::CloseChannel { channel }).unwrap();
            return self.channels.retain(|&open| open != channel);
        }
        // One of the newest ids, so that ids make progress.
        let id = dice.choice(self.ids[self.ids.len().saturating_sub(4)..].iter().copied());
        let (Some(id), 3..) = (id, choice) else {
            let id = self.side.fresh_id();
            let spaces =
                [PortSpace::Tcp, PortSpace::Tcp, PortSpace::Tcp, PortSpace::Udp, PortSpace::Udp, PortSpace::Ipoib];
            let port_space = dice.choice(spaces).unwrap();
            self.side.call(Call::CreateId { id, channel, port_space }).unwrap();
            return self.ids.push(id);
        };
        let addr = dice.choice(ADDRESSES).unwrap();
        let param = ConnParam { qp_num: dice.u32(..1000), ..ConnParam::default() };
        let data = vec![7; dice.usize(..210) / 2];
        let _ = match choice {
            4 => self.side.bind(id, addr),
            5..=8 => self.side.resolve_addr(id, None, if dice.u32(..3) > 0 { "10.0.0.2:7" } else { addr }, 1000),
            9..=13 => self.side.resolve_route(id),
            14 | 15 => self.side.listen(id, 2),
            16..=19 => self.side.connect(id, param, &data),
            20..=22 => self.side.accept(id, param, &data),
            23 => self.side.reject(id, &data),
            24 | 25 => self.side.establish(id),
            26 | 27 => self.side.disconnect(id),
            28 | 29 => self.side.migrate(id, channel, other),
            30 => self.side.destroy(id),
            31 => self.attach(id),
            32 => self.side.device.destroy_qp(id),
            33 => self.side.device.release(id, channel).map(|handle| {
                self.channels.retain(|&kept| kept != channel);
                let channel = self.side.fresh_channel();
                self.side.device.adopt(id, channel, handle).unwrap();
                self.channels.push(channel);
            }),
            34 => self.side.notify(id),
            35 | 36 => {
                let joined = self.side.join(id, dice.choice([GROUP, "10.0.0.9:1"]).unwrap(), dice.u32(..4) == 0);
                joined.map(|group| self.groups.push((id, group)))
            }
            37 => match dice.choice(self.groups.iter().copied()) {
                Some((member, group)) => self.side.leave(member, group, GROUP),
                None => Ok(()),
            },
            38 => {
                let (on, number) = (dice.bool(), 14);
                let options = [CmOption::ReuseAddr(on), CmOption::AfOnly(on), CmOption::AckTimeout(number)];
                self.side.set(id, dice.choice(options).unwrap())
            }
            39 => self.side.call(Call::SetEce { id, ece: Ece { vendor_id: 1, options: 1 } }),
            40..=44 => self.talk(dice),
            _ => self.fetch(channel),
        };
    }

    fn fetch(&mut self, channel: ChannelKey) -> Result<(), Errno> {
        let Some(event) = self.side.fetch(channel) else { return Ok(()) };
        if event.listener.is_some() {
            self.ids.push(event.id);
        }
        if let (Some(found), Some(station)) = (event.datagram, self.stations.last_mut()) {
            station.to = Some(found);
        }
        Ok(())
    }

    /// Creates a QP and posts to it at once, in any state.
    fn attach(&mut self, id: IdKey) -> Result<(), Errno> {
        let device = &mut self.side.device;
        let pd = device.alloc_pd(id)?;
        let cq = device.create_cq(id, 32)?;
        let mr = pd.register([0; 16], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let mut qp = device.create_qp(Attaching::bare(id), &pd, &cq, &cq, Caps::default())?;
        qp.post_recv(1, mr.sge(0..16))?;
        let posted = qp.post_send(SendWr::write(2, mr.sge(0..4), mr.remote(0)));
        let room = pd.register([0; 64], Access::LOCAL_WRITE)?;
        self.stations.push(Peer { pd, _cq: cq, qp, mr: room, to: None });
        Ok(posted?)
    }

    /// Sends a datagram from a random QP to the destination of an event.
    fn talk(&mut self, dice: &mut Rng) -> Result<(), Errno> {
        let Some(at) = dice.choice(0..self.stations.len()) else { return Ok(()) };
        let Peer { pd, qp, mr, to, .. } = &mut self.stations[at];
        qp.post_recv(3, mr.sge(0..64))?;
        let Some(Datagram { qp_num, qkey, path }) = *to else { return Ok(()) };
        let ah = pd.create_ah(&path)?;
        Ok(qp.post_send(SendWr::send_to(4, mr.sge(0..8), To { ah: &ah, qp_num, qkey }))?)
    }
}

#[test]
fn nonsense_is_survived() {
    let (mut sent, mut flown) = (0, 0);
    for seed in 0..300 {
        let Env { fabric, host, server, client, cs, .. } = Env::with(Config { seed, loss: 0.1, ..Config::default() });
        let mut actors = [Actor::new(server), Actor::new(client)];
        actors[0].channels.push(cs);
        actors[0].side.listener(cs, "10.0.0.2:7");
        let mut dice = Rng::with_seed(seed);
        for _ in 0..800 {
            actors[dice.usize(..2)].act(&mut dice);
            let pause = [0, 1, 20, 5_000_000][dice.usize(..4)];
            fabric.advance_by(Duration::from_micros(pause));
            match dice.u32(..1000) {
                0..=9 => host.set_link(dice.u32(..4) > 0),
                10 => host.remove_device(),
                11..=30 => host.add_device(),
                31 => host.fail_over(),
                32 => host.fail_next_join(-110),
                33 => host.lose_group(ip("239.1.2.3")),
                _ => {}
            }
        }
        sent += fabric.counters().sent;
        flown += fabric.counters().datagrams_lost + fabric.counters().datagrams_dropped;
        drop(actors);
        let mut steps = 0;
        while let Some(due) = fabric.next_due() {
            fabric.advance_to(due);
            steps += 1;
            assert!(steps < 10_000, "seed {seed}: no end");
        }
    }
    assert!(sent > 1000 && flown > 10, "the nonsense is too shallow: {sent} messages, {flown} lost datagrams");
}
