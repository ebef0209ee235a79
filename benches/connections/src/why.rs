//! Why something failed, without the names of ids: so that alike is counted as alike.

use cmid_proto::{Error, Refused};

pub(crate) fn why(error: &Error) -> String {
    match error {
        Error::Refused(Refused::Request { request, state, why, .. }) => {
            format!("{request} refused while {state}: {why}")
        }
        Error::Refused(refused) => format!("refused: {refused}"),
        Error::Failed(failure) => format!("{} failed: {}", failure.call, failure.errno),
        Error::Fault(fault) => format!("fault: {fault}"),
    }
}
