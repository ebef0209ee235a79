//! What must hold in every state: the laws of the core.

/// A law that the core has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// The core panicked.
    Panics,
    /// It took a faithful device's word for a fault.
    Faults,
    /// A migration or destruction was called for while the application owed an ack of that id, and had not given it up
    /// (`destroy_now`).
    CallsWhileAcksAreOwed,
    /// A ack token counted that was given up.
    TakesVoidReceipt,
    /// Two calls about one id were under way.
    TwoCalls,
    /// The device does not have what a call named, or has it elsewhere.
    NamesWhatIsNotThere,
    /// The device was asked to move a listening id.
    MovesListener,
    /// An id was accepted while the device still reports its events on its listener's channel. Unread requests there
    /// would delay them.
    AcceptsOnListenersChannel,
    /// The id of a request was moved although the application neither accepts nor migrates it.
    MovesUnasked,
    /// A channel was closed that ids are on.
    ClosesUnderIds,
    /// An event came out of the kernel's order, twice, or was never there.
    Order,
    /// An event came on a channel that its id is not on.
    WrongChannel,
    /// The end of a request was told that was not under way.
    EndsTwice,
    /// A request never ended.
    NeverEnds,
    /// An event was lost.
    LosesEvent,
    /// An event stayed unread although everything came to rest: a wake-up was lost.
    LosesWakeUp,
    /// Not everything went away when all was acked and destroyed.
    Leaks,
    /// A destroy was refused.
    RefusesDestroy,
}
