//! Steps as events of the crate `tracing`.

use cmid_proto::drive::{Observer, Step, StepRecord};

use crate::parts::{Parts, Problem};
use crate::transition::{Arrow, arrow};

/// Emits each step of a drive as an event of the crate `tracing`.
///
/// | target | steps | level |
/// | --- | --- | --- |
/// | `cmid::request` | requests of the application, acks | DEBUG; WARN if refused |
/// | `cmid::event` | events that are delivered to the application | DEBUG; WARN if they report a failure |
/// | `cmid::call` | device calls (TRACE) and their outcomes | DEBUG; WARN if failed |
/// | `cmid::read` | events read from the device | TRACE; ERROR for a fault, and if a read failed |
/// | `cmid::drive` | begin and end of the drive | DEBUG |
/// | `cmid::drive` | other steps: readable channels, passing deadlines | TRACE |
///
/// The message is the text of the [`Step`]. It has the fields that apply to the step:
///
/// | field | what it is |
/// | --- | --- |
/// | `now` | the time of the drive |
/// | `id` | the id |
/// | `state` | the state of the id after the step |
/// | `channel` | the event channel |
/// | `request` | the kind of the request, as [`RequestKind`](cmid_proto::RequestKind) |
/// | `event` | the type of the event, as [`EventKind`](cmid_proto::EventKind) |
/// | `error` | the refusal, the errno, the fault, or the status of the event |
///
/// ```
/// use cmid_proto::{Drive, Limits, PortSpace};
/// use cmid_trace::Tracing;
/// use tracing_subscriber::filter::{LevelFilter, Targets};
/// use tracing_subscriber::prelude::*;
///
/// // Requests and delivered events from DEBUG on, failures of everything.
/// let filter = Targets::new()
///     .with_target("cmid", LevelFilter::WARN)
///     .with_target("cmid::request", LevelFilter::DEBUG)
///     .with_target("cmid::event", LevelFilter::DEBUG);
/// tracing_subscriber::registry().with(tracing_subscriber::fmt::layer().with_filter(filter)).init();
///
/// # let fabric = cmid_sim::Fabric::new(cmid_sim::Config::default());
/// # let device = fabric.host(&["10.0.0.1".parse()?]).device();
/// let mut drive = Drive::with(device, (), Tracing, Limits::SINGLE);
/// let id = drive.create_id(None, PortSpace::Tcp)?;
/// drive.establish(id).unwrap_err();
/// // DEBUG cmid::request: create id, TCP in synchronous mode: id0 now=0.000000000 s id=id0
/// // WARN cmid::request: refused: establish on id0 while idle: not in this state now=0.000000000 s id=id0 state=idle
/// //     request=establish error=establish on id0 while idle: not in this state
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tracing;

/// The level of an event.
#[derive(Clone, Copy)]
enum Level {
    Trace,
    Debug,
    Warn,
    Error,
}

impl Observer for Tracing {
    fn step(&mut self, record: &StepRecord<'_>) {
        // The end of a turn changes nothing.
        if matches!(record.step, Step::Yield) {
            return;
        }
        let parts = Parts::of(&record.step);
        let arrow = arrow(&record.step);
        let level = match parts.problem {
            None => usual(&record.step, arrow),
            Some(Problem::Fault(_) | Problem::Unreadable(_)) => Level::Error,
            Some(Problem::Refused(_) | Problem::Errno(_) | Problem::Status(_)) => Level::Warn,
        };
        emit(arrow, level, parts, record);
    }

    fn sibling(&self) -> Self {
        Tracing
    }
}

/// Emits the event. `tracing` needs a separate macro call for each target and level.
fn emit(arrow: Option<Arrow>, level: Level, parts: Parts, record: &StepRecord<'_>) {
    let StepRecord { now, core, step } = record;
    let Parts { id, channel, request, event, problem } = parts;
    macro_rules! at {
        ($target:literal, $level:ident) => {
            tracing::event!(
                target: $target,
                tracing::Level::$level,
                %now,
                id = id.map(display),
                state = id.and_then(|id| core.state(id)).map(display),
                channel = channel.map(display),
                request = request.map(display),
                event = event.map(display),
                error = problem.map(display),
                "{step}"
            )
        };
    }
    macro_rules! on {
        ($target:literal) => {
            match level {
                Level::Trace => at!($target, TRACE),
                Level::Debug => at!($target, DEBUG),
                Level::Warn => at!($target, WARN),
                Level::Error => at!($target, ERROR),
            }
        };
    }
    match arrow {
        Some(Arrow::AppToCore) => on!("cmid::request"),
        Some(Arrow::CoreToApp) => on!("cmid::event"),
        Some(Arrow::CoreToDevice | Arrow::Outcome) => on!("cmid::call"),
        Some(Arrow::DeviceToCore) => on!("cmid::read"),
        Some(Arrow::Clock) | None => on!("cmid::drive"),
    }
}

/// Returns the level of a step if nothing failed.
fn usual(step: &Step<'_>, arrow: Option<Arrow>) -> Level {
    match arrow {
        Some(Arrow::AppToCore | Arrow::CoreToApp | Arrow::Outcome) => Level::Debug,
        Some(Arrow::CoreToDevice | Arrow::DeviceToCore | Arrow::Clock) => Level::Trace,
        None if matches!(step, Step::Begin { .. } | Step::End) => Level::Debug,
        None => Level::Trace,
    }
}
