//! The process that a driver is in.

/// The number of the process that has registered descriptors. A forked child has the same epoll instances: if it removed a
/// descriptor there, its parent would not hear of it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(pub u32);

impl Default for Process {
    /// Returns this process.
    fn default() -> Self {
        Process(std::process::id())
    }
}

impl Process {
    /// Whether it is another process: this one is a child of it.
    #[must_use]
    pub fn is_other(self) -> bool {
        self != Process::default()
    }
}
