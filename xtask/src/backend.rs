//! The backends of cmid-verbs.

use clap::ValueEnum;
use cmid_softroce::Kernel;

/// A backend of cmid-verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// librdmacm
    Librdmacm,
    /// The kernel's own interface
    #[default]
    Kernel,
}

impl Backend {
    /// Each kernel with recorded results, with each backend.
    pub(crate) const ON_BOTH_KERNELS: [(Kernel, Self); 4] = [
        (Kernel::V6_1, Backend::Librdmacm),
        (Kernel::V6_12, Backend::Librdmacm),
        (Kernel::V6_1, Backend::Kernel),
        (Kernel::V6_12, Backend::Kernel),
    ];

    /// Its name, as the programs and suites take it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Backend::Librdmacm => "librdmacm",
            Backend::Kernel => "kernel",
        }
    }

    /// The name of the recorded results on soft-iWARP.
    pub(crate) fn iwarp_environment(self, kernel: Kernel) -> String {
        format!("siw-{}", self.environment(kernel))
    }

    /// The name of the recorded results.
    pub(crate) fn environment(self, kernel: Kernel) -> String {
        match self {
            Backend::Librdmacm => kernel.series().into(),
            Backend::Kernel => format!("{}-kernel", kernel.series()),
        }
    }
}
