//! Makes commands of the kernel backend fail. They are system calls of this program's own text, so no function can
//! replace them: the kernel's syscall user dispatch passes them to a signal handler.

use std::ffi::{c_int, c_long, c_void};
use std::fs;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Of `linux/prctl.h`.
const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
const PR_SYS_DISPATCH_OFF: usize = 0;
const PR_SYS_DISPATCH_ON: usize = 1;

/// `SYSCALL_DISPATCH_FILTER_BLOCK`: system calls outside of the permitted range are passed to the handler.
static SELECTOR: AtomicU8 = AtomicU8::new(1);

/// The number of calls that destroy an id and fail from now on.
static FAILING: AtomicU32 = AtomicU32::new(0);

/// Lets the next calls that destroy an id fail.
pub(crate) fn failing(times: u32) {
    FAILING.store(times, Ordering::SeqCst);
}

/// Whether a call that destroys an id fails.
pub(crate) fn fails() -> bool {
    FAILING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// While it lives, the commands of this thread that destroy an id fail where [`fails`] returns true.
pub(crate) struct Intercepted(());

impl Intercepted {
    pub(crate) fn begin() -> Self {
        // SAFETY: zeros are a value of it.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = on_system_call as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler has the type that SA_SIGINFO requires.
        assert_eq!(unsafe { libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) }, 0);
        // The handler's own calls and its return are in libc.
        let (start, len) = text_of_libc();
        // SAFETY: the selector is a static byte.
        let begun =
            unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, start, len, SELECTOR.as_ptr()) };
        assert_eq!(begun, 0, "{}", std::io::Error::last_os_error());
        Intercepted(())
    }
}

impl Drop for Intercepted {
    fn drop(&mut self) {
        // SAFETY: no memory is passed.
        unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0_usize, 0_usize, 0_usize) };
    }
}

/// The address and the length of libc's text.
fn text_of_libc() -> (usize, usize) {
    let maps = fs::read_to_string("/proc/self/maps").expect("procfs");
    let text = maps.lines().find(|line| line.contains(" r-xp ") && line.contains("/libc.so"));
    let range = text.and_then(|line| line.split_once(' ')?.0.split_once('-')).expect("libc is a shared library");
    let [start, end] = [range.0, range.1].map(|number| usize::from_str_radix(number, 16).expect("an address"));
    (start, end - start)
}

/// Makes the system call of the interrupted code, or lets it fail.
extern "C" fn on_system_call(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context of the interrupted code, which only this handler uses now.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let of = |register: c_int| register as usize;
    let [number, a, b, c, d, e, f] =
        [libc::REG_RAX, libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9]
            .map(|register| registers[of(register)]);
    registers[of(libc::REG_RAX)] = if number == libc::SYS_write && destroys(b as usize, c) && fails() {
        -i64::from(libc::EBUSY)
    } else {
        // SAFETY: the interrupted code makes this call. Its errno stays as it is.
        unsafe {
            let before = *libc::__errno_location();
            let returned: c_long = libc::syscall(number, a, b, c, d, e, f);
            let returned = if returned == -1 { -c_long::from(*libc::__errno_location()) } else { returned };
            *libc::__errno_location() = before;
            returned
        }
    };
}

/// Whether the bytes of a write are `struct rdma_ucm_cmd_hdr` with `RDMA_USER_CM_CMD_DESTROY_ID`, and `struct
/// rdma_ucm_destroy_id`.
fn destroys(from: usize, count: i64) -> bool {
    // SAFETY: the interrupted code gives `count` bytes to read.
    count == 8 + 16 && unsafe { ptr::with_exposed_provenance::<[u16; 4]>(from).read_unaligned() }[..3] == [1, 0, 16]
}
