//! A host's part of the device: its ids and channels in the kernel, and the calls that it makes at once.

use std::collections::{BTreeMap, BTreeSet};

use cmid_proto::{Begun, Call, ChannelKey, Errno, Error, Flow, IdKey, Outcome, Progress, Request, Service};

use super::asked::check_asked;
use super::kernel::{File, Kernel, No};
use crate::say::say;

/// The ids and channels of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    pub(crate) ids: BTreeMap<IdKey, No>,
    pub(crate) files: BTreeMap<ChannelKey, File>,
    /// Every key that an id has had.
    keys: BTreeSet<IdKey>,
    /// An external failure, and how many calls are made before it.
    pub(crate) refusal: Option<(usize, Errno)>,
}

/// A call that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) call: Call,
    pub(crate) outcome: Outcome,
    /// The channel that delivered the events of its id.
    pub(crate) home: Option<ChannelKey>,
}

impl Device {
    /// Makes the calls of a request; `asked` is `None` for calls that follow from an ack or an event.
    pub(crate) fn make(
        &mut self,
        kernel: &mut Kernel,
        asked: Option<&Request<'_>>,
        mut begun: Begun<'_, '_>,
    ) -> (Vec<Made>, Result<Progress, Error>) {
        let mut all: Vec<Made> = Vec::new();
        loop {
            let mut outcome = Ok(());
            if let Some(call) = begun.call() {
                check_asked(&call, begun.private_data(), asked);
                outcome = match (&call, asked, self.refusal) {
                    // Only one that the application has asked for: it can be repeated.
                    (Call::Destroy { .. }, Some(_), Some((0, errno))) => {
                        self.refusal = None;
                        Err(errno)
                    }
                    _ => self.call(kernel, &call),
                };
                say(|| format!("  {call:?} is made: {outcome:?}"));
                all.push(Made { call, outcome, home: call.id().and_then(|id| begun.core().channel(id)) });
            }
            match begun.end(outcome) {
                Flow::Next(next) => begun = next,
                Flow::Done(result) => {
                    // A request fails with the errno of its last call, and only then.
                    let last = all.last().map_or(Ok(()), |made| made.outcome);
                    let failed = all.iter().filter(|made| made.outcome.is_err()).count();
                    assert_eq!(failed, usize::from(last.is_err()), "a call after one that failed: {all:?}");
                    match &result {
                        Err(Error::Failed(failure)) => assert_eq!(Err(failure.errno), last, "{all:?}: {failure}"),
                        Err(error) => panic!("{all:?}: {error}"),
                        Ok(_) => assert!(last.is_ok() || asked.is_none(), "{asked:?} ends well after {all:?}"),
                    }
                    return (all, result);
                }
            }
        }
    }

    /// Adds an id under its key, which no other id has had.
    pub(crate) fn insert(&mut self, id: IdKey, no: No) {
        assert!(self.keys.insert(id), "{id} is a key used twice");
        self.ids.insert(id, no);
    }

    pub(crate) fn call(&mut self, kernel: &mut Kernel, call: &Call) -> Outcome {
        let refused = match self.refusal.take() {
            Some((0, errno)) => Some(errno),
            later => {
                self.refusal = later.map(|(left, errno)| (left - 1, errno));
                None
            }
        };
        match *call {
            Call::OpenChannel { channel } => {
                refused.map_or(Ok(()), Err)?;
                self.files.insert(channel, kernel.open());
                Ok(())
            }
            Call::CloseChannel { channel } => {
                let file = self.files.remove(&channel).expect("a channel that is closed was open");
                kernel.close(file);
                Ok(())
            }
            Call::CreateId { id, channel, port_space } => {
                let file = self.files[&channel];
                refused.map_or(Ok(()), Err)?;
                let datagram = port_space.service() == Service::Datagram;
                self.insert(id, kernel.create(id, file, datagram));
                Ok(())
            }
            _ => {
                let id = call.id().expect("a call about an id");
                let no = *self.ids.get(&id).unwrap_or_else(|| panic!("{call:?}: the device has no such id"));
                let from_to = match *call {
                    Call::Migrate { from, to, .. } => Some((self.files[&from], self.files[&to])),
                    _ => None,
                };
                if matches!(call, Call::Destroy { .. }) {
                    self.ids.remove(&id);
                }
                kernel.call(no, call, from_to, refused)
            }
        }
    }
}
