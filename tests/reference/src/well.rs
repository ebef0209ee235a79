//! Calls that all succeed.

use cmid_proto::{Core, Flow};

/// Makes the calls of a request with success.
pub(crate) fn well(mut flow: Flow<'_, '_>) {
    let result = loop {
        match flow {
            Flow::Next(begun) => flow = begun.end(Ok(())),
            Flow::Done(result) => break result,
        }
    };
    assert!(result.is_ok(), "all calls have succeeded, and the result is {result:?}");
}

/// Makes the calls that follow from earlier steps, with success.
pub(crate) fn follow_well(core: &mut Core) {
    loop {
        while let Some(begun) = core.next() {
            well(Flow::Next(begun));
        }
        let Some(begun) = core.next_child() else { return };
        well(Flow::Next(begun));
    }
}
