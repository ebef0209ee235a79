//! Random calls, faults and traffic: the counts of the device and of the machines agree at every step, and no memory
//! is freed while the device uses it.

use cmid_proto::datapath::{SendWr, prelude::*};
use cmid_sim::memory::Code;
use cmid_sim::{Change, Completion, Left, Mw, ReregFault, Resource};
use fastrand::Rng;

use super::*;
use crate::common::{Equipment, Pair};
use crate::iwarp;

struct Chaos {
    env: Env,
    pair: Pair,
    pds: Vec<Pd>,
    mrs: Vec<Mr>,
    mws: Vec<Mw>,
    dice: Rng,
    log: Vec<String>,
    dropped_unusable: usize,
    /// The failures of moves to another domain that have left the old registration valid.
    in_doubt: usize,
    removed: bool,
}

impl Chaos {
    fn new(seed: u64) -> Chaos {
        // A generator of its own, so that the simulator's choices are not the test's.
        let mut dice = Rng::with_seed(seed);
        let config = Config {
            seed,
            rereg: dice.choice([Rereg::None, Rereg::PdAccess, Rereg::All]).unwrap(),
            new_keys_on_rereg: dice.bool(),
            lock_limit: dice.choice([None, Some(8 * 4096)]).unwrap(),
            copy_at_poll: dice.bool(),
            completions_outlive_qp: dice.bool(),
            copies_late: dice.bool(),
            destroy_after_removal: true,
            ..Config::default()
        };
        let is_iwarp = dice.usize(..8) == 0;
        let mut env = if is_iwarp { iwarp::env_with(config) } else { Env::with(config) };
        let pair = if is_iwarp {
            let ([client, new], [client_qp, server_qp]) = iwarp::established(&mut env);
            Pair { listener: new, client, new, client_qp, server_qp }
        } else {
            env.established_with_qps()
        };
        let server = env.server.device.alloc_pd(pair.new).unwrap();
        let pds = vec![pair.client_qp.pd.clone(), pair.server_qp.pd.clone(), server];
        Chaos {
            env,
            pair,
            pds,
            mrs: Vec::new(),
            mws: Vec::new(),
            dice,
            log: Vec::new(),
            dropped_unusable: 0,
            in_doubt: 0,
            removed: false,
        }
    }

    fn step(&mut self) {
        let what = self.dice.usize(..16);
        let at = self.dice.usize(..self.mrs.len().max(1));
        let access = self
            .dice
            .choice([Access::empty(), Access::LOCAL_WRITE, RW | Access::REMOTE_ATOMIC, RW | Access::MW_BIND])
            .unwrap();
        let pd = self.dice.usize(..3);
        let outcome = match what {
            0 | 1 => {
                let made =
                    self.pds[pd].register(vec![0; 1 + self.dice.usize(..9000)], access).map(|mr| self.mrs.push(mr));
                format!("{made:?}")
            }
            2 => {
                self.fault();
                String::new()
            }
            3 => {
                self.env.fabric.advance_by(Config::default().latency);
                String::new()
            }
            4 => self.poll(),
            15 => self.lose(),
            5 => format!("{:?}", self.pds[pd].alloc_mw().map(|mw| self.mws.push(mw))),
            6 if !self.mws.is_empty() => {
                let at = self.dice.usize(..self.mws.len());
                drop(self.mws.swap_remove(at));
                String::new()
            }
            _ if self.mrs.is_empty() => String::new(),
            7 | 8 => {
                let buffer = (self.dice.bool()).then(|| vec![0; 1 + self.dice.usize(..9000)].into());
                let pd = (self.dice.bool()).then(|| self.pds[pd].clone());
                let access = (self.dice.bool()).then_some(access);
                let provider = self.dice.choice([Provider::Unknown, Provider::ChecksFirst]).unwrap();
                let policy = Policy { provider, ..self.dice.choice([ANEW, Policy::default()]).unwrap() };
                let moves = pd.is_some();
                let ended = self.mrs[at].reregister(Change { buffer, pd, access }, policy);
                self.in_doubt += usize::from(moves && matches!(ended.result, Err(MemoryError::Failed(_))));
                format!("{:?} {:?}", ended.result, ended.buffer.map(|buffer| buffer.len()))
            }
            9 => match self.mrs.swap_remove(at).deregister() {
                Ok(returned) => format!("{}", returned.buffer.len()),
                Err(ErrorWith { given: mr, error }) => {
                    self.mrs.push(mr);
                    error.to_string()
                }
            },
            10 => {
                let mr = self.mrs.swap_remove(at);
                self.dropped_unusable += usize::from(mr.state() == MrState::Unusable);
                String::new()
            }
            11 if !self.mws.is_empty() => {
                let (mw, len) = (self.dice.usize(..self.mws.len()), self.mrs[at].len());
                let qp = &mut self.pair.server_qp.qp;
                let posted = qp.post_bind(1, &mut self.mws[mw], &self.mrs[at], 0..len / 2, Access::REMOTE_READ);
                format!("{posted:?}")
            }
            12 if !self.mws.is_empty() => {
                let mw = self.dice.usize(..self.mws.len());
                format!("{:?}", self.pair.server_qp.qp.post_invalidate(2, &mut self.mws[mw]))
            }
            _ => self.post(at),
        };
        self.log.push(format!("{what} {outcome}"));
    }

    fn fault(&mut self) {
        let host = &self.env.host;
        let errno =
            self.dice.choice([Errno::EIO, Errno::ENOMEM, Errno::EINTR, Errno::EINVAL, Errno::EOPNOTSUPP]).unwrap();
        // After any error the driver may have done anything, except that EOPNOTSUPP means that nothing was done.
        let left = match errno {
            Errno::EOPNOTSUPP => Left::Old,
            _ => self.dice.choice([Left::Old, Left::New, Left::Neither]).unwrap(),
        };
        match self.dice.usize(..10) {
            0 => host.fail_next_creation(Resource::Mr, Errno::EAGAIN),
            1 => host.fail_next_deregistration(Errno::EBUSY),
            2 => host.fail_next_deregistration(errno),
            at @ 3..=7 => {
                let codes = [Code::DontForkNew, Code::DoForkOld, Code::Cmd, Code::CmdAndDoForkNew, Code::Unknown(-17)];
                host.fail_next_reregistration(ReregFault { code: codes[at - 3], errno, left });
            }
            _ => host.fail_next_doorbell(errno),
        }
    }

    /// Destroys a QP from time to time, and rarely removes the device.
    fn lose(&mut self) -> String {
        match self.dice.usize(..40) {
            0 => {
                self.removed = true;
                self.env.host.remove_device();
                "the device is removed".to_owned()
            }
            1 => format!("{:?}", self.env.client.device.destroy_qp(self.pair.client)),
            2 => format!("{:?}", self.env.server.device.destroy_qp(self.pair.new)),
            _ => String::new(),
        }
    }

    fn poll(&mut self) -> String {
        let Pair { client_qp: Equipment { send_cq, recv_cq, .. }, server_qp, .. } = &mut self.pair;
        let mut log = String::new();
        for cq in [send_cq, recv_cq, &mut server_qp.send_cq, &mut server_qp.recv_cq] {
            let mut done = [Completion::default(); 2];
            let count = cq.poll(&mut done).unwrap_or(0);
            done[..count].iter().for_each(|done| log += &format!("{} {}, ", done.status, done.opcode));
        }
        log
    }

    fn post(&mut self, at: usize) -> String {
        let side = if self.dice.bool() { &mut self.pair.client_qp } else { &mut self.pair.server_qp };
        let target = &self.mrs[self.dice.usize(..self.mrs.len())];
        let remote = target.remote(0);
        let (mr, qp) = (&self.mrs[at], &mut side.qp);
        let end = mr.len();
        let posted = match self.dice.usize(..5) {
            0 => qp.post_send(SendWr::send(1, mr.sge(0..end))),
            1 => qp.post_recv(2, mr.sge(0..end)),
            2 => qp.post_send(SendWr::write(3, mr.sge(0..end.min(10)), remote)),
            3 => qp.post_send(SendWr::fetch_add(5, mr.sge(0..8), remote, 1)),
            _ => qp.post_send(SendWr::read(4, mr.sge(0..end.min(10)), remote)),
        };
        format!("{posted:?}")
    }

    /// Asserts that the counts of the device and of the machines agree. The machines may count one more for each
    /// region that was to move to another domain and is unusable, or in doubt.
    #[track_caller]
    fn check(&self) {
        let counters = self.env.fabric.counters();
        assert_eq!((counters.freed_in_use, counters.copied_to_freed), (0, 0), "{:?}", self.log);
        if self.removed {
            return;
        }
        let unusable = self.mrs.iter().filter(|mr| mr.state() == MrState::Unusable).count();
        let surplus: Option<u32> =
            self.pds.iter().map(|pd| pd.users().checked_sub(pd.users_at_device().unwrap())).sum();
        let surplus = usize::try_from(surplus.expect("the device counts more")).unwrap();
        assert!(surplus <= unusable + self.dropped_unusable + self.in_doubt, "{:?}", self.log);
    }

    /// Ends everything and asserts that nothing is left.
    fn end(mut self) -> Vec<String> {
        self.mrs.clear();
        let windows_first = self.dice.bool();
        if windows_first {
            self.mws.clear();
        }
        // The QPs may be detached from their ids already.
        let _: Result<(), Errno> = self.env.client.device.destroy_qp(self.pair.client);
        let _: Result<(), Errno> = self.env.server.device.destroy_qp(self.pair.new);
        self.mws.clear();
        let Pair { client_qp, server_qp, .. } = self.pair;
        let mut cqs = [client_qp.send_cq, client_qp.recv_cq, server_qp.send_cq, server_qp.recv_cq];
        drop((client_qp.qp, server_qp.qp));
        for cq in &mut cqs {
            while cq.poll(&mut [Completion::default()]).is_ok_and(|count| count > 0) {}
        }
        // These calls use up the remaining faults.
        for _ in 0..200 {
            drop(self.pds[0].register(vec![0], RW));
            drop(self.pds[0].alloc_mw());
        }
        for pd in &self.pds {
            let at_device = if self.removed { None } else { Some(0) };
            assert_eq!((pd.users(), pd.users_at_device()), (0, at_device), "{:?}", self.log);
            pd.dealloc().unwrap();
        }
        let counters = self.env.fabric.counters();
        assert_eq!((counters.freed_in_use, counters.copied_to_freed, counters.overruns), (0, 0, 0), "{:?}", self.log);
        self.log
    }
}

fn run(seed: u64) -> Vec<String> {
    let mut chaos = Chaos::new(seed);
    for _ in 0..300 {
        chaos.step();
        chaos.check();
    }
    chaos.end()
}

#[test]
fn the_books_agree_whatever_happens() {
    let logs: Vec<String> = (0..1500).flat_map(run).collect();
    // The runs covered each case that matters.
    for seen in [
        "Ok(InPlace)",
        "Ok(Anew)",
        "work requests that name it are in flight",
        "ERR_DO_FORK_OLD",
        "the new registration is valid",
        "the MR can only be deregistered",
        "the old registration is valid",
        "in flight",
        "a memory window is bound to it",
        "the MR keeps memory or a PD of a re-registration that failed",
        "remote access error",
        "success BIND_MW",
        "success LOCAL_INV",
        "success FETCH_ADD",
        "work request flushed BIND_MW",
        "work request flushed RECV",
        "the device is removed",
    ] {
        assert!(logs.iter().any(|device_channel| device_channel.contains(seen)), "{seen}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
