//! Calls that all succeed.

use cmid_proto::{Begun, Core, Flow};

/// Makes the calls of a request with success.
pub(crate) fn well(mut begun: Begun<'_, '_>) {
    let result = loop {
        match begun.end(Ok(())) {
            Flow::Next(next) => begun = next,
            Flow::Done(result) => break result,
        }
    };
    assert!(result.is_ok(), "all calls have succeeded, and the result is {result:?}");
}

/// Makes the calls that follow from earlier steps, with success.
pub(crate) fn follow_well(core: &mut Core) {
    loop {
        while let Some(begun) = core.next() {
            well(begun);
        }
        let Some(begun) = core.next_child() else { return };
        well(begun);
    }
}
