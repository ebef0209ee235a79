//! The backends of cmid-verbs.

use clap::ValueEnum;
use cmid_softroce::Kernel;

/// A backend of cmid-verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// librdmacm
    #[default]
    Librdmacm,
    /// The kernel's own interface
    Kernel,
}

impl Backend {
    /// Its name, as the programs and suites take it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Backend::Librdmacm => "librdmacm",
            Backend::Kernel => "kernel",
        }
    }

    /// The name of the recorded results.
    pub(crate) fn environment(self, kernel: Kernel) -> String {
        match self {
            Backend::Librdmacm => kernel.series().into(),
            Backend::Kernel => format!("{}-kernel", kernel.series()),
        }
    }

    /// The setting of the variable that the suites read.
    pub(crate) fn setting(self) -> String {
        format!("CMID_BACKEND={}", self.name())
    }
}
