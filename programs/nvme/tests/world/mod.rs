//! An initiator and a target on a simulated fabric, in one loop and in real time.

pub(crate) mod fragile;

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::{Duration, Instant};

use cmid_mio::sim::{Clock, Config, Fabric, Host};
use cmid_nvme::controller::Settings;
use cmid_nvme::initiator::{BufferOf, Ended, Happened, Initiator, On, Options};
use cmid_nvme::wire::Command;
use fragile::Fragile;
use mio::{Events, Poll};

use crate::target::{Disk, Target};

/// Everything that a test waits for comes by then, on slow machines too.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const ADDR: &str = "10.0.0.2:4420";

/// Options whose times are those of a test.
pub(crate) fn options(queues: u16) -> Options {
    Options {
        addr: ADDR.parse().expect("an address"),
        settings: Settings {
            subsystem: "nqn.test".into(),
            host: "nqn.host".into(),
            host_id: [1; 16],
            queues,
            size: 16,
            keep_alive: Duration::from_millis(400),
        },
        transfer: 4096,
        buffers: 0,
        timeout: Duration::from_secs(5),
        reconnect_delay: Duration::from_millis(20),
        ctrl_loss: None,
        reactors: 0,
    }
}

/// The memory of a command.
pub(crate) type Data = BufferOf<Fragile>;

pub(crate) struct World {
    poll: Poll,
    /// The host of the initiator.
    #[allow(dead_code, reason = "not each test uses it")]
    pub(crate) client: Host,
    /// The host of the target.
    pub(crate) host: Host,
    pub(crate) initiator: Initiator<Fragile>,
    /// What is to panic on a reactor ([`fragile`]).
    pub(crate) panics: Arc<AtomicU8>,
    pub(crate) target: Option<Target>,
    pub(crate) disk: Disk,
    pub(crate) happened: Vec<Happened>,
}

impl World {
    pub(crate) fn new(options: Options) -> Self {
        World::on(Config::default(), options)
    }

    /// A world on a fabric with this configuration, in real time.
    pub(crate) fn on(config: Config, options: Options) -> Self {
        let fabric = Fabric::new(Config { clock: Clock::Real, ..config });
        let [client, host] = ["10.0.0.1", "10.0.0.2"].map(|ip| fabric.host(&[ip.parse().expect("an address")]));
        let poll = Poll::new().expect("a poll");
        let panics = Arc::new(AtomicU8::new(0));
        let device = Fragile { device: client.device(), panics: Arc::clone(&panics) };
        let initiator = Initiator::new(device, poll.registry(), 0, options).expect("an initiator");
        let mut world =
            World { poll, client, host, initiator, panics, target: None, disk: Disk::new(), happened: Vec::new() };
        world.restart();
        world
    }

    /// A world whose controller is live.
    pub(crate) fn live(queues: u16, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = options(queues);
        change(&mut options);
        let mut world = World::new(options);
        world.turn_until(|world| world.initiator.controller().is_some());
        world
    }

    /// Starts the target, with the blocks that it had.
    pub(crate) fn restart(&mut self) {
        let addr = ADDR.parse().expect("an address");
        self.target = None;
        self.target = Some(Target::new(self.host.device(), self.poll.registry(), addr));
    }

    pub(crate) fn turn(&mut self) {
        let mut events = Events::with_capacity(64);
        // Answers that the target holds back count its turns.
        let at_most = self.initiator.before_poll(Duration::from_millis(2));
        self.poll.poll(&mut events, Some(at_most)).expect("a poll");
        for event in &events {
            let is_ours = self.initiator.handle(event);
            let is_targets = !is_ours && self.target.as_mut().is_some_and(|target| target.handle(event));
            // Events of a target that has crashed are nobody's.
            assert!(is_ours || is_targets || event.token().0 >= crate::target::TOKENS);
        }
        if let Some(target) = &mut self.target {
            target.turn(&mut self.disk);
        }
        self.initiator.turn();
        while let Some(happened) = self.initiator.next_happened() {
            self.happened.push(happened);
        }
    }

    pub(crate) fn turn_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            self.turn();
            assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {:?}", self.happened);
        }
    }

    /// Runs a command, and waits for its end.
    pub(crate) fn run<B: Into<Data>>(&mut self, on: On, command: Command<B>) -> Ended<Data> {
        let ticket = self.initiator.submit(on, command).expect("room");
        let ended = self.ended();
        assert_eq!(ended.ticket, ticket);
        ended
    }

    /// Waits for the end of a request.
    pub(crate) fn ended(&mut self) -> Ended<Data> {
        let start = Instant::now();
        loop {
            if let Some(ended) = self.initiator.next_ended() {
                return ended;
            }
            self.turn();
            assert!(start.elapsed() < PATIENCE, "no end within {PATIENCE:?}: {:?}", self.happened);
        }
    }
}
