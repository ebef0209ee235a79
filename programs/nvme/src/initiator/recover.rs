//! The end of a controller: all of its connections end, and what becomes of the commands.

use std::collections::VecDeque;
use std::time::Duration;

use cmid_mio::proto::Time;
use cmid_mio::proto::datapath::DataPath;
use cmid_mio::proto::redial::{GivenUp, Redial, RedialLimits, Todo};

use super::request::{On, Request, Tag};
use super::{BRING_UP, BufferOf, Ended, Failure, Happened, Initiator, Loss, Options, RETRIES};

/// When the controller is brought up: at once, and after a loss as the options say.
pub(super) fn redial(options: &Options, now: Time) -> Redial {
    let limits = RedialLimits {
        handshake: BRING_UP.saturating_add(options.timeout),
        backoff: options.reconnect_delay,
        backoff_max: options.reconnect_delay,
        attempts: u32::MAX,
        // With zero no second attempt follows, whatever this is.
        within: options.ctrl_loss.map_or(Duration::MAX, |limit| if limit.is_zero() { BRING_UP } else { limit }),
    };
    Redial::new(0, limits, now)
}

impl<D: DataPath> Initiator<D> {
    /// The controller is lost, or was not brought up.
    pub(super) fn lose(&mut self, loss: Loss) {
        let Some(controller) = &self.controller else { return };
        let was_live = controller.is_live();
        self.end_lanes();
        let now = self.driver.drive().within(Duration::ZERO);
        let random = fastrand::u32(..);
        let todo = if was_live { self.redial.lost(now, random) } else { self.redial.failed(loss.cause(), now, random) };
        self.decide(loss, if let Todo::GiveUp(rule) = todo { Some(rule) } else { None });
    }

    /// The time of an attempt has passed, or that of all of them: `rule`.
    pub(super) fn late(&mut self, rule: Option<GivenUp>) {
        self.end_lanes();
        self.decide(Loss::Late, rule);
    }

    /// Another attempt follows, unless a rule forbids it. A first one that fails has no second: its cause is mostly a wrong
    /// argument, and the user waits.
    fn decide(&mut self, loss: Loss, rule: Option<GivenUp>) {
        let never = self.options.ctrl_loss == Some(Duration::ZERO);
        if self.has_been_live && rule.is_none() && !never {
            self.tell(Happened::Lost(loss));
            return;
        }
        if rule.is_none() {
            // It says that no attempt follows.
            let _ = self.redial.stop();
        }
        self.end_all(&loss.to_string());
        self.tell(Happened::GivenUp { loss, rule });
    }

    /// Ends all connections. Requests that were outstanding wait again, in their order, unless that was so too often.
    pub(super) fn end_lanes(&mut self) {
        self.controller = None;
        self.wake = None;
        self.alive = Time::NEVER;
        let mut tags = self.end_reactors();
        for lane in &mut self.lanes {
            lane.end(self.driver.drive(), &self.registry);
            tags.extend(lane.take_commands());
        }
        // The next controller has the others of its own.
        let of = |tag| if let Tag::Request(request) = tag { Some(request) } else { None };
        let mut requests: Vec<Request<_>> = tags.into_iter().filter_map(of).collect();
        requests.iter_mut().for_each(|request| _ = request.restore());
        requests.sort_by_key(|request| std::cmp::Reverse(request.ticket));
        for mut request in requests {
            request.failures += 1;
            if request.failures > RETRIES {
                let Request { ticket, command, failures, .. } = request;
                self.ended.push_back(Ended { ticket, command, result: Err(Failure::Lost(failures)) });
            } else {
                self.waiting_of(request.on).push_front(request);
            }
        }
    }

    /// Ends all requests that wait, and those that come later.
    pub(super) fn end_all(&mut self, why: &str) {
        let why = self.given_up.insert(why.to_owned()).clone();
        for Request { ticket, command, .. } in self.waiting_admin.drain(..).chain(self.waiting.drain(..)) {
            self.ended.push_back(Ended { ticket, command, result: Err(Failure::GivenUp(why.clone())) });
        }
    }

    pub(super) fn waiting_of(&mut self, on: On) -> &mut VecDeque<Request<BufferOf<D>>> {
        match on {
            On::Admin => &mut self.waiting_admin,
            On::Io => &mut self.waiting,
        }
    }
}
