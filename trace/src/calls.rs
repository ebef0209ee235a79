//! Replays the calls of a request with the outcomes of the lines that follow it.

use std::collections::VecDeque;

use cmid_proto::{Core, Error, Fault, Flow, IdKey, Refused, State};

use crate::line::Line;
use crate::replay::same;
use crate::snapshot::state;
use crate::values::{As, Bytes};

/// The id that a line concerns, and its state before and after the line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) id: Option<IdKey>,
    pub(crate) before: Option<State>,
    pub(crate) after: Option<State>,
}

/// The lines that were replayed with a request before their turn, and what is wrong with the line after them.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    lines: VecDeque<Seen>,
    wrong: Option<String>,
}

/// An outcome that was reported to the core, and the recorded results.
struct Made<'a> {
    id: Option<IdKey>,
    before: Option<State>,
    fault: &'a Option<String>,
    state: &'a Option<String>,
}

/// Why a request is not replayed to its end.
enum Stop {
    Refused(Refused),
    Wrong(String),
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Stop::Refused(refused)
    }
}

impl From<String> for Stop {
    fn from(what: String) -> Self {
        Stop::Wrong(what)
    }
}

impl Ahead {
    /// Takes the next line that was replayed. `None` if the next line was not.
    pub(crate) fn take(&mut self) -> Option<Result<Seen, String>> {
        self.lines.pop_front().map(Ok).or_else(|| self.wrong.clone().map(Err))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.wrong.is_none()
    }

    /// Makes a request of `core`, and its calls with the outcomes in `lines`, the lines after the request. The calls, the
    /// faults and the states of the ids are compared with the lines.
    ///
    /// The recording of a program that has crashed may end before a call or its outcome. This call has changed nothing.
    ///
    /// # Errors
    /// The core refuses the request. An error in `lines` belongs to its line.
    pub(crate) fn make<'r>(
        &mut self,
        core: &mut Core,
        lines: &[Line],
        begin: impl for<'c> FnOnce(&'c mut Core) -> Result<Flow<'c, 'r>, Refused>,
    ) -> Result<(), Refused> {
        let (refused, wrong) = match self.run(core, lines, begin) {
            Ok(()) => (Ok(()), None),
            Err(Stop::Refused(reason)) => (Err(reason), None),
            Err(Stop::Wrong(what)) => (Ok(()), Some(what)),
        };
        self.wrong = wrong;
        refused
    }

    fn run<'r>(
        &mut self,
        core: &mut Core,
        lines: &[Line],
        begin: impl for<'c> FnOnce(&'c mut Core) -> Result<Flow<'c, 'r>, Refused>,
    ) -> Result<(), Stop> {
        let mut flow = begin(core)?;
        let (mut lines, mut made) = (lines.iter(), None);
        loop {
            let begun = match flow {
                Flow::Done(result) => {
                    let fault = if let Err(Error::Fault(fault)) = result { Some(fault) } else { None };
                    return Ok(made.map_or(Ok(()), |made| self.compare(&made, core, fault))?);
                }
                Flow::Next(begun) => begun,
            };
            if let Some(made) = made {
                self.compare(&made, begun.core(), None)?;
            }
            let (call, data) = match lines.next() {
                Some(Line::Call { call, data }) => (call, data),
                None | Some(Line::End(_)) => return Ok(()),
                Some(_) => {
                    let what = format!("the next step is the call {:?}, and this line is another", begun.call());
                    return Err(what.into());
                }
            };
            same("the call", &format!("{:?}", begun.call()), call)?;
            same("its private data", &Bytes::from(begun.private_data()), data)?;
            self.lines.push_back(Seen::default());
            let (errno, fault, state) = match lines.next() {
                Some(Line::Outcome { errno, fault, state }) => (errno, fault, state),
                None | Some(Line::End(_)) => return Ok(()),
                Some(_) => return Err("a call is under way, and this line is not its outcome".to_owned().into()),
            };
            let id = begun.call().id();
            made = Some(Made { id, before: id.and_then(|id| begun.core().state(id)), fault, state });
            flow = begun.end(errno.map_or(Ok(()), |As(errno)| Err(errno)));
        }
    }

    /// Compares the results of an outcome with its line.
    fn compare(&mut self, made: &Made<'_>, core: &Core, fault: Option<Fault>) -> Result<(), String> {
        let &Made { id, before, .. } = made;
        same("the fault", &fault.map(|fault| fault.to_string()), made.fault)?;
        same("the id's state", &id.and_then(|id| state(core, id)), made.state)?;
        self.lines.push_back(Seen { id, before, after: id.and_then(|id| core.state(id)) });
        Ok(())
    }
}
