//! Replaces the kernel in tests: the feature `scripted-kernel`.

use std::cell::RefCell;

use cmid_proto::Outcome;

type Script = Box<dyn FnMut(&[u8], &mut [u8]) -> Outcome>;

thread_local! {
    static SCRIPT: RefCell<Option<Script>> = const { RefCell::new(None) };
}

/// Calls `run`. Each [`KernelCm`](crate::KernelCm) that this thread uses meanwhile sends its commands to `kernel`
/// instead of the kernel. Its channels are descriptors of `/dev/null`.
///
/// `kernel` gets the bytes of the command (`rdma/rdma_user_cm.h`) and the buffer for the answer, which is empty for
/// commands without one. Bytes of the buffer that it does not write stay as they are. Its errno becomes that of
/// write(2).
pub fn with_kernel<T>(kernel: impl FnMut(&[u8], &mut [u8]) -> Outcome + 'static, run: impl FnOnce() -> T) -> T {
    /// Ends the script, even if `run` panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            SCRIPT.set(None);
        }
    }
    SCRIPT.set(Some(Box::new(kernel)));
    let _end = End;
    run()
}

/// Whether a script runs on this thread. Channels are then descriptors of `/dev/null`.
pub(super) fn is_running() -> bool {
    SCRIPT.with_borrow(Option::is_some)
}

/// The outcome of a command; `None` without a script.
pub(super) fn answer(command: &[u8], into: &mut [u8]) -> Option<Outcome> {
    SCRIPT.with_borrow_mut(|script| script.as_mut().map(|script| script(command, into)))
}
