//! The text of a failure without the names of ids, so that equal failures are counted together.

use cmid_proto::{Error, Refused};

pub(crate) fn failure_text(error: &Error) -> String {
    match error {
        Error::Refused(Refused::Request { request, state, reason, .. }) => {
            format!("{request} refused while {state}: {reason}")
        }
        Error::Refused(refused) => format!("refused: {refused}"),
        Error::Failed(failure) => format!("{} failed: {}", failure.call, failure.errno),
        Error::Fault(fault) => format!("fault: {fault}"),
    }
}
