//! Answers in place of the kernel's, for tests: the feature `scripted-kernel`.

use std::cell::RefCell;

use cmid_proto::Outcome;

type Script = Box<dyn FnMut(&[u8], &mut [u8]) -> Outcome>;

thread_local! {
    static SCRIPT: RefCell<Option<Script>> = const { RefCell::new(None) };
}

/// Runs a function. Each [`KernelCm`](crate::KernelCm) that this thread uses meanwhile has `kernel` for its kernel:
/// channels are descriptors of `/dev/null`, and `kernel` makes each command.
///
/// It gets the command as it would be written to the kernel (`rdma/rdma_user_cm.h`), and the place of the answer, which
/// is empty for commands without one. What it does not write there stays. The errno that it returns is that of write(2).
pub fn with_kernel<T>(kernel: impl FnMut(&[u8], &mut [u8]) -> Outcome + 'static, run: impl FnOnce() -> T) -> T {
    /// Ends the script, also when `run` panics.
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

/// Whether a script answers on this thread. Then channels are descriptors of `/dev/null`.
pub(super) fn is_running() -> bool {
    SCRIPT.with_borrow(Option::is_some)
}

/// The outcome of a command; `None` without a script.
pub(super) fn answer(command: &[u8], into: &mut [u8]) -> Option<Outcome> {
    SCRIPT.with_borrow_mut(|script| script.as_mut().map(|script| script(command, into)))
}
