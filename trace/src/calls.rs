//! Replays the calls of a request with the outcomes of the lines that follow it.

use std::collections::VecDeque;

use cmid_proto::{Begun, Core, Error, Fault, Flow, IdKey, State};

use crate::compare::same;
use crate::line::Line;
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

impl Ahead {
    /// Takes the next line that was replayed. `None` if the next line was not.
    pub(crate) fn take(&mut self) -> Option<Result<Seen, String>> {
        self.lines.pop_front().map(Ok).or_else(|| self.wrong.clone().map(Err))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.wrong.is_none()
    }

    /// Makes a request of `core`, and its calls with the outcomes in `lines`, the lines after the request; without calls it
    /// has its effect at once. The calls, the faults and the states of the ids are compared with the lines.
    ///
    /// The recording of a program that has crashed may end before a call or its outcome. This call has changed nothing.
    ///
    /// # Errors
    /// That of `begin`. An error in `lines` belongs to its line.
    pub(crate) fn make<'r, R>(
        &mut self,
        core: &mut Core,
        lines: &[Line],
        begin: impl for<'c> FnOnce(&'c mut Core) -> Result<Begun<'c, 'r>, R>,
    ) -> Result<(), R> {
        let begun = begin(core)?;
        let last = self.run(lines, begun);
        self.wrong = last.and_then(|last| last.map_or(Ok(()), |(made, fault)| self.compare(&made, core, fault))).err();
        Ok(())
    }

    /// Returns the last outcome, and the fault, if the request has ended with a call.
    fn run<'l>(
        &mut self,
        lines: &'l [Line],
        mut begun: Begun<'_, '_>,
    ) -> Result<Option<(Made<'l>, Option<Fault>)>, String> {
        let mut lines = lines.iter();
        loop {
            let (mut made, mut outcome) = (None, Ok(()));
            if let Some(call) = begun.call() {
                let (recorded, data) = match lines.next() {
                    Some(Line::Call { call, data }) => (call, data),
                    None | Some(Line::End(_)) => return Ok(None),
                    Some(_) => return Err(format!("the next step is the call {call:?}, and this line is another")),
                };
                same("the call", &format!("{call:?}"), recorded)?;
                same("its private data", &Bytes::from(begun.private_data()), data)?;
                self.lines.push_back(Seen::default());
                let (errno, fault, state) = match lines.next() {
                    Some(Line::Outcome { errno, fault, state }) => (errno, fault, state),
                    None | Some(Line::End(_)) => return Ok(None),
                    Some(_) => return Err("a call is under way, and this line is not its outcome".into()),
                };
                let id = call.id();
                made = Some(Made { id, before: id.and_then(|id| begun.core().state(id)), fault, state });
                outcome = errno.map_or(Ok(()), |As(errno)| Err(errno));
            }
            begun = match begun.end(outcome) {
                Flow::Next(next) => next,
                Flow::Done(result) => {
                    let fault = if let Err(Error::Fault(fault)) = result { Some(fault) } else { None };
                    return Ok(made.map(|made| (made, fault)));
                }
            };
            if let Some(made) = made {
                self.compare(&made, begun.core(), None)?;
            }
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
