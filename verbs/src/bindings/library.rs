//! Functions of a shared library that are looked up while the program runs.

use core::ffi::c_int;
use core::{mem, ptr};

use libc::EOPNOTSUPP;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Declares the functions of a library, and the function that loads it.
///
/// A program loads it once; a failure is not remembered. It fails if the library or one of its functions is missing. A function
/// with `since` is one that this version of rdma-core has added: where it is missing, its calls fail with `EOPNOTSUPP`
/// ([`Absent`]), as do all calls while the library is not loaded.
///
/// A call is one atomic load and an indirect call; a linked program has the indirect call of its PLT. The inline functions of
/// verbs.h, which post and poll, are not among them: as C does, this crate takes their pointers from the context or the QP.
macro_rules! library {
    (
        $(#[$doc:meta])*
        $load:ident $table:ident $file:literal
        $( fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $(, since $since:literal)?; )*
    ) => {
        /// The functions of the library.
        pub struct $table {
            $( $name: unsafe extern "C" fn($($ty),*) $(-> $ret)?, )*
        }

        impl $table {
            const ABSENT: &'static Self = &$table {
                $( $name: {
                    unsafe extern "C" fn absent($(_: $ty),*) $(-> $ret)? {
                        Absent::absent()
                    }
                    absent
                }, )*
            };

            fn once() -> &'static OnceLock<Self> {
                static LOADED: OnceLock<$table> = OnceLock::new();
                &LOADED
            }

            fn find() -> Result<Self, String> {
                let symbols = Symbols::load($file)?;
                // SAFETY: the type of each field is that of the function (tests/layout.rs).
                Ok(unsafe { $table {
                    $( $name: {
                        let since: &[u32] = &[$($since)?];
                        symbols.find(stringify!($name), Self::ABSENT.$name, !since.is_empty())?
                    }, )*
                } })
            }
        }

        $(#[$doc])*
        pub fn $load() -> Result<(), String> {
            if $table::once().get().is_none() {
                let found = $table::find()?;
                // Another thread may have found the same.
                $table::once().get_or_init(|| found);
            }
            Ok(())
        }

        $(
            /// The function of C.
            ///
            /// # Safety
            /// Its rules apply.
            pub unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
                let table = $table::once().get().unwrap_or($table::ABSENT);
                // SAFETY: as the caller promises.
                unsafe { (table.$name)($($arg),*) }
            }
        )*

        #[cfg(test)]
        impl $table {
            /// The name of each function, the types of its arguments, and that of its result.
            pub const SIGNATURES: &'static [(&'static str, &'static [&'static str], &'static str)] = &[
                $( (stringify!($name), &[$(stringify!($ty)),*], concat!($(stringify!($ret))?)), )*
            ];
        }
    };
}

/// The functions of a library that is loaded, by name.
pub(super) struct Symbols {
    file: &'static str,
    /// The program with all that it has loaded.
    program: Library,
}

impl Symbols {
    /// Loads a library for the life of the process, or finds the one that the program has loaded or is linked with.
    pub(super) fn load(file: &'static str) -> Result<Self, String> {
        // SAFETY: the initializers of rdma-core's libraries may run at any time and on any thread.
        let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) };
        mem::forget(library.map_err(|why| format!("{file} cannot be loaded: {why}"))?);
        Ok(Symbols { file, program: Library::this() })
    }

    /// Returns a function, or `absent` if it is missing and newer than the library may be.
    ///
    /// It is looked up as the dynamic linker does, so that a preloaded library can replace it.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function.
    pub(super) unsafe fn find<F: Copy>(&self, name: &str, absent: F, is_newer: bool) -> Result<F, String> {
        // SAFETY: as the caller promises.
        match unsafe { self.program.get::<F>(name.as_bytes()) } {
            Ok(found) => Ok(*found),
            Err(_) if is_newer => Ok(absent),
            Err(_) => Err(format!("{} has no function {name}", self.file)),
        }
    }
}

/// What a function returns that is missing.
pub(super) trait Absent {
    /// Sets errno to `EOPNOTSUPP`, and returns the value by which the functions of rdma-core report that they have failed.
    fn absent() -> Self;
}

fn set_errno() {
    // SAFETY: the calling thread always has an errno.
    unsafe { *libc::__errno_location() = EOPNOTSUPP };
}

impl Absent for () {
    fn absent() {}
}

impl Absent for c_int {
    fn absent() -> Self {
        set_errno();
        -1
    }
}

/// A function that returns a number or a negative errno.
impl Absent for isize {
    fn absent() -> Self {
        set_errno();
        -(EOPNOTSUPP as isize)
    }
}

impl Absent for u64 {
    fn absent() -> Self {
        0
    }
}

impl<T> Absent for *mut T {
    fn absent() -> Self {
        set_errno();
        ptr::null_mut()
    }
}

impl<T> Absent for *const T {
    fn absent() -> Self {
        set_errno();
        ptr::null()
    }
}

#[cfg(test)]
mod tests {
    use core::ffi::{c_int, c_void};
    use std::sync::OnceLock;

    use super::{Absent, Symbols};

    library! {
        /// No machine has it.
        load_missing Missing "libcmid-missing.so.1"
        fn missing_device(name: *const c_void) -> *mut c_void;
        fn missing_end(device: *mut c_void);
    }

    library! {
        /// Every machine has it. It stands for an rdma-core that has grown.
        load_older Older "libc.so.6"
        fn abs(number: c_int) -> c_int;
        fn labs(number: i64) -> i64, since 1;
        fn cmid_status(number: c_int) -> c_int, since 2;
        fn cmid_object() -> *mut c_void, since 3;
    }

    library! {
        /// A library that is not the one that is meant.
        load_foreign Foreign "libc.so.6"
        fn abs_of_foreign(number: c_int) -> c_int;
    }

    impl Absent for i64 {
        fn absent() -> Self {
            0
        }
    }

    fn errno() -> c_int {
        std::io::Error::last_os_error().raw_os_error().unwrap()
    }

    #[test]
    fn the_error_names_the_library_that_is_missing() {
        for _ in 0..2 {
            let reason = load_missing().unwrap_err();
            assert!(reason.starts_with("libcmid-missing.so.1 cannot be loaded: "), "{reason}");
        }
        // SAFETY: without the library these do nothing.
        let device = unsafe { missing_device(core::ptr::null()) };
        assert!(device.is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        // SAFETY: as above.
        unsafe { missing_end(device) };
    }

    #[test]
    fn a_library_without_a_function_that_each_version_has_is_another_one() {
        assert_eq!(load_foreign().unwrap_err(), "libc.so.6 has no function abs_of_foreign");
    }

    #[test]
    fn a_function_that_an_older_library_lacks_is_absent() {
        // SAFETY: it only computes; so do the others.
        assert_eq!((unsafe { abs(-3) }, errno()), (-1, libc::EOPNOTSUPP), "it is not loaded yet");
        assert_eq!(load_older(), Ok(()));
        assert_eq!(load_older(), Ok(()));
        // SAFETY: as above.
        assert_eq!(unsafe { (abs(-3), labs(-4)) }, (3, 4));
        // SAFETY: as above.
        assert_eq!((unsafe { cmid_status(1) }, errno()), (-1, libc::EOPNOTSUPP));
        // SAFETY: as above.
        assert!(unsafe { cmid_object() }.is_null());
    }

    #[test]
    fn signatures_are_listed_for_the_comparison_with_the_headers() {
        let last = Older::SIGNATURES.last().unwrap();
        assert_eq!(*last, ("cmid_object", &[][..], "*mut c_void"));
        assert_eq!(Missing::SIGNATURES[1], ("missing_end", &["*mut c_void"][..], ""));
    }
}
