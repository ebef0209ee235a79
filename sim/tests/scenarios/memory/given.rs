//! The error of a failed call has what the call was given; `?` passes the error alone.

use cmid_proto::datapath::{CreateError, MemoryWindow, QueuePair};

use super::*;

/// `?`, in a function with another error.
fn passed<F: From<E>, T, E>(failed: Result<T, E>) -> Result<T, F> {
    Ok(failed?)
}

#[test]
fn the_question_mark_passes_the_error_and_in_a_box_also_what_was_given() {
    let mut env = Env::new();
    let mut c = env.established_with_qps().client_qp;
    let empty = || c.pd.register([], RW).map(drop);
    let error = empty().unwrap_err().error;
    assert_eq!(passed::<MemoryError, _, _>(empty()), Err(error));
    assert_eq!(passed::<CreateError, _, _>(empty()), Err(error.into()));
    assert_eq!(passed::<std::io::Error, _, _>(empty()).unwrap_err().to_string(), error.to_string());
    assert_eq!(passed::<Errno, _, _>(c.pd.pool([], 8, RW).map(drop)), Err(Errno::EINVAL));
    let (mr, mut mw) = (c.pd.register([1; 8], RW | Access::MW_BIND).unwrap(), c.pd.alloc_mw().unwrap());
    c.qp.post_bind(1, &mut mw, &mr, 0..8, Access::REMOTE_READ).unwrap();
    assert_eq!(passed::<Errno, _, _>(mw.dealloc().map(drop)), Err(Errno::EBUSY));
    let boxed: Box<dyn std::error::Error + Send + Sync> = passed(mr.deregister()).unwrap_err();
    assert_eq!(
        boxed.to_string(),
        "refused: deregister an MR while registered: work requests that name it are in flight"
    );
    let failed = boxed.downcast::<ErrorWith<Mr, MemoryError>>().unwrap();
    assert_eq!((failed.given.len(), failed.given.state()), (8, MrState::Registered));
}
