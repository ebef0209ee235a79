//! Checks that a call matches its request.

use cmid_proto::{Call, Request};

/// Panics if a call or its private data differs from the request; `None` for a call that follows from an ack or an
/// event.
pub(crate) fn check_asked(call: &Call, data: &[u8], asked: Option<&Request<'_>>) {
    match (*call, asked) {
        (Call::Bind { addr, .. }, Some(&Request::Bind { addr: asked })) => assert_eq!(addr, asked),
        (Call::ResolveAddr { src, dst, .. }, Some(&Request::ResolveAddr { src: from, dst: to })) => {
            assert_eq!((src, dst), (from, to));
        }
        (Call::Listen { backlog, .. }, Some(&Request::Listen { backlog: asked })) => assert_eq!(backlog, asked),
        (Call::Connect { param, .. }, Some(&Request::Connect { param: asked, private_data }))
        | (Call::Accept { param, .. }, Some(&Request::Accept { param: asked, private_data })) => {
            assert_eq!((param, data), (asked, private_data));
        }
        (Call::Reject { reason, .. }, Some(&Request::Reject { reason: asked, private_data })) => {
            assert_eq!((reason, data), (asked, private_data));
        }
        (Call::SetOption { option, .. }, Some(&Request::SetOption { option: asked })) => assert_eq!(option, asked),
        (Call::SetEce { ece, .. }, Some(&Request::SetEce { ece: asked })) => assert_eq!(ece, asked),
        (
            Call::Bind { .. }
            | Call::ResolveAddr { .. }
            | Call::Listen { .. }
            | Call::Connect { .. }
            | Call::Accept { .. }
            | Call::Reject { .. }
            | Call::SetOption { .. }
            | Call::SetEce { .. },
            asked,
        ) => panic!("{call:?} was not asked for: {asked:?}"),
        // The id of a connection request is moved only if it is accepted or migrated.
        (Call::Migrate { .. }, Some(asked)) => {
            let moves = matches!(asked, Request::Migrate { .. } | Request::Listen { .. } | Request::Accept { .. });
            assert!(moves, "{call:?} while {asked:?}");
        }
        _ => {}
    }
    let sends = matches!(call, Call::Connect { .. } | Call::Accept { .. } | Call::Reject { .. });
    assert!(sends || data.is_empty(), "private data with {call:?}");
}
