//! The outcome of a behaviour.

use std::fmt;
use std::io::{self, Write as _};

use cmid_proto::Errno;
use serde::{Deserialize, Serialize};

/// The outcome of a behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is as described.
    Pass,
    /// It is not.
    Fail,
    /// The device, its driver or its library does not have it.
    NotSupported,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Outcome::Pass => "pass",
            Outcome::Fail => "FAIL",
            Outcome::NotSupported => "not supported",
        })
    }
}

/// A behaviour that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behaviour {
    /// What was checked.
    pub name: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason, unless it passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Behaviour {
    /// Runs a behaviour. With `verbose` prints its outcome.
    pub(crate) fn run(name: &str, verbose: bool, behaviour: impl FnOnce() -> anyhow::Result<()>) -> Self {
        let behaviour = Self::new(name, behaviour());
        if verbose {
            let _ = writeln!(io::stderr(), "{behaviour}");
        }
        behaviour
    }

    fn new(name: &str, result: anyhow::Result<()>) -> Self {
        let (outcome, reason) = match result {
            Ok(()) => (Outcome::Pass, None),
            Err(error) => {
                let unsupported = error.downcast_ref::<Unsupported>().is_some();
                let outcome = if unsupported { Outcome::NotSupported } else { Outcome::Fail };
                (outcome, Some(chain(&error)))
            }
        };
        Behaviour { name: name.to_owned(), outcome, reason }
    }
}

/// The error with its causes, without those that its text has already.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Behaviour { name, outcome, reason } = self;
        write!(f, "{outcome:13}  {name}")?;
        reason.as_ref().map_or(Ok(()), |reason| write!(f, " ({reason})"))
    }
}

/// The device lacks a feature.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unsupported(pub(crate) String);

/// The error of a call: [`Unsupported`] for the errnos with which providers and kernel refuse what they do not have.
pub(crate) fn classified(call: &str, error: impl Into<Errno> + fmt::Display) -> anyhow::Error {
    let text = format!("{call}: {error}");
    let errno = error.into();
    if [Errno::EOPNOTSUPP, Errno::ENOSYS].contains(&errno) {
        anyhow::Error::new(Unsupported(text))
    } else {
        anyhow::Error::new(errno).context(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_lacks_is_not_a_failure() {
        let outcome = |errno| Behaviour::new("a", Err(classified("ibv_x", errno).context("windows"))).outcome;
        assert_eq!(outcome(Errno::EOPNOTSUPP), Outcome::NotSupported);
        assert_eq!(outcome(Errno::ENOSYS), Outcome::NotSupported);
        assert_eq!(outcome(Errno::EINVAL), Outcome::Fail);
        assert_eq!(Behaviour::new("a", Ok(())).outcome, Outcome::Pass);
    }

    #[test]
    fn a_reason_names_each_cause_once() {
        let reason = |error| Behaviour::new("a", Err(error)).reason;
        assert_eq!(reason(classified("ibv_x", Errno::EIO)).as_deref(), Some("ibv_x: EIO"));
        assert_eq!(reason(anyhow::anyhow!("b").context("a")).as_deref(), Some("a: b"));
    }
}
