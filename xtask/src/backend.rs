//! The backends of cmid-verbs.

use clap::ValueEnum;
use cmid_softroce::{Kernel, Transport};

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
    /// Its name, as the programs and suites take it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Backend::Librdmacm => "librdmacm",
            Backend::Kernel => "kernel",
        }
    }

    /// The name of the recorded results on this kernel and transport.
    pub(crate) fn environment(self, kernel: Kernel, transport: Transport) -> String {
        let transport = if transport == Transport::Siw { "siw-" } else { "" };
        let backend = if self == Backend::Kernel { "-kernel" } else { "" };
        format!("{transport}{kernel}{backend}")
    }
}
