//! The three programs on real devices. They go on without standard output: its reader may have ended.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use cmid_epoll::proto::Time;
use cmid_epoll::proto::datapath::DataPath;
use ticker::driver::now;
use ticker::exchange::Exchange;
use ticker::publisher::{Publisher, PublisherConfig};
use ticker::quotes::Quotes;
use ticker::reactor::Reactor;
use ticker::trader::{Trader, TraderConfig};

use crate::args::{ExchangeArgs, FeedArgs, TraderArgs};

/// The number of ticks that a feed keeps for replays.
pub(crate) const KEPT: usize = 1 << 16;

/// The number of early ticks that a trader holds.
pub(crate) const WINDOW: usize = 1 << 12;

/// The interval of status lines.
const STATUS: Duration = Duration::from_secs(1);

/// Returns the number of a new session: the time in microseconds, which is larger than the number of each earlier
/// session.
pub(crate) fn new_session() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_micros() as u64)
}

/// Returns the deadline after `seconds`; none for 0.
fn end(seconds: u64) -> Time {
    if seconds == 0 { Time::NEVER } else { now().after(Duration::from_secs(seconds)) }
}

/// Returns whether a status line is due.
fn is_due(due: &mut Time, now: Time) -> bool {
    let is_due = now >= *due;
    if is_due {
        *due = now.after(STATUS);
    }
    is_due
}

pub(crate) fn feed<D: DataPath>(device: D, args: &FeedArgs) -> Result<()> {
    let mut reactor = Reactor::new(device);
    let FeedArgs { listen, group, rate, .. } = *args;
    let config = PublisherConfig { listen, group, session: new_session(), kept: KEPT };
    let mut feed = Publisher::start(reactor.drive(), &config)?;
    let _ = say!("session {}: {rate} ticks per second to {group}, replays at {listen}", config.session);
    let (mut quotes, interval) = (Quotes::new(config.session), Duration::from_secs(1) / rate);
    let (end, mut tick_due, mut status_due) = (end(args.seconds), now(), now().after(STATUS));
    loop {
        let now = now();
        if now >= end {
            return Ok(());
        }
        if feed.is_joined() && now >= tick_due {
            feed.publish(now, quotes.next_tick())?;
            tick_due = tick_due.after(interval).max(now);
        }
        if reactor.round(&mut feed)? && is_due(&mut status_due, now) {
            let _ = say!("{} ticks sent, {} receivers connected", feed.next() - 1, feed.receivers());
        }
    }
}

pub(crate) fn trader<D: DataPath>(device: D, args: &TraderArgs) -> Result<()> {
    let mut reactor = Reactor::new(device);
    let TraderArgs { local, group, feed, exchange, edge, seconds } = *args;
    let config = TraderConfig { local, group, feed, exchange, window: WINDOW, edge };
    let mut trader = Trader::start(reactor.drive(), &config, |_| ())?;
    let (mut status_due, end) = (now().after(STATUS), end(seconds));
    loop {
        // Only the slow path reads the clock.
        if !reactor.round(&mut trader)? {
            continue;
        }
        if let Some(failure) = trader.first_failure() {
            bail!(failure);
        }
        let now = reactor.drive().now();
        if is_due(&mut status_due, now) || now >= end {
            let _ = say!("{}", status(&trader));
        }
        if now >= end {
            return Ok(());
        }
    }
}

/// Describes what a trader has received and ordered.
fn status<D: DataPath>(trader: &Trader<D, impl FnMut(&ticker::receiver::Update)>) -> String {
    let (counts, orders) = (trader.counts(), trader.orders());
    let state = match (trader.is_live(), trader.failure()) {
        (true, _) => "live".to_owned(),
        (false, None) => "not live".to_owned(),
        (false, Some(failure)) => format!("not live, {failure}"),
    };
    format!(
        "{state}: {} ticks, {} of them replayed, {} skipped, {} missing; {} orders, {} accepted, {} refused, {} unknown",
        counts.ticks,
        counts.replayed,
        counts.skipped,
        trader.receiver().missing(),
        orders.sent,
        orders.accepted,
        orders.refused,
        orders.unknown,
    )
}

pub(crate) fn exchange<D: DataPath>(device: D, args: &ExchangeArgs) -> Result<()> {
    let mut reactor = Reactor::new(device);
    let mut exchange = Exchange::start(reactor.drive(), args.listen, |_| ())?;
    let _ = say!("orders at {}", args.listen);
    let (mut status_due, end) = (now().after(STATUS), end(args.seconds));
    loop {
        if !reactor.round(&mut exchange)? {
            continue;
        }
        let now = reactor.drive().now();
        if is_due(&mut status_due, now) || now >= end {
            let (accepted, refused) = exchange.counts();
            let _ = say!("{accepted} orders accepted, {refused} refused, {} traders connected", exchange.traders());
        }
        if now >= end {
            return Ok(());
        }
    }
}
