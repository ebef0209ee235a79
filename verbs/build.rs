//! Checks the version of libclang before rdma-sys uses it: with a newer one the generator of rdma-sys panics.

fn main() {
    println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
    #[cfg(feature = "rdma-sys")]
    if let Err(reason) = libclang::check() {
        println!(
            "cargo::error={reason}. Install libclang 15 or older and set LIBCLANG_PATH, or build cmid-verbs without the feature \
             rdma-sys: it then loads the libraries at run time"
        );
    }
}

#[cfg(feature = "rdma-sys")]
#[allow(unsafe_code, reason = "the functions of libclang")]
mod libclang {
    use std::ffi::CStr;

    /// The last version that bindgen 0.59, the generator of rdma-sys 0.3, works with.
    const LAST: u32 = 15;

    /// Finds libclang as bindgen does.
    pub(crate) fn check() -> Result<(), String> {
        clang_sys::load().map_err(|error| format!("rdma-sys needs libclang: {error}"))?;
        let version = version().ok_or("libclang has no version")?;
        let number = version.split(|c: char| !c.is_ascii_digit()).find_map(|digits| digits.parse::<u32>().ok());
        match number {
            Some(number) if number > LAST => Err(format!("rdma-sys needs libclang {LAST} or older, not {version}")),
            _ => Ok(()),
        }
    }

    fn version() -> Option<String> {
        // SAFETY: the library is loaded. The string is disposed of after its bytes are copied.
        unsafe {
            let string = clang_sys::clang_getClangVersion();
            let bytes = clang_sys::clang_getCString(string);
            let copy = (!bytes.is_null()).then(|| CStr::from_ptr(bytes).to_string_lossy().into_owned());
            clang_sys::clang_disposeString(string);
            copy
        }
    }
}
