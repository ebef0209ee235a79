//! Signals that end this process. While a machine runs they only set a flag, so that it is stopped and its files are
//! removed.

use crate::error::{Error, WithPath};
use std::io;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

struct Flags {
    /// A signal has arrived.
    pending: Arc<AtomicBool>,
    /// No [`Watch`] exists: a signal has its default effect.
    idle: Arc<AtomicBool>,
}

static FLAGS: OnceLock<Flags> = OnceLock::new();
static WATCHES: AtomicUsize = AtomicUsize::new(0);

/// While a value of this type exists, signals set the flag.
pub(crate) struct Watch(());

impl Watch {
    pub(crate) fn begin() -> Result<Self, Error> {
        let flags = match FLAGS.get() {
            Some(flags) => flags,
            None => {
                let flags = register().about("signal handlers")?;
                FLAGS.get_or_init(|| flags)
            }
        };
        WATCHES.fetch_add(1, SeqCst);
        flags.idle.store(false, SeqCst);
        Ok(Watch(()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if WATCHES.fetch_sub(1, SeqCst) == 1 {
            if let Some(flags) = FLAGS.get() {
                flags.idle.store(true, SeqCst);
            }
        }
    }
}

fn register() -> io::Result<Flags> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let flags = Flags { pending: Arc::new(AtomicBool::new(false)), idle: Arc::new(AtomicBool::new(true)) };
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flags.idle))?;
        signal_hook::flag::register(signal, Arc::clone(&flags.pending))?;
    }
    Ok(flags)
}

/// Fails if a signal has arrived. Called in every wait.
pub(crate) fn check() -> Result<(), Error> {
    let pending = FLAGS.get().is_some_and(|flags| flags.pending.load(SeqCst));
    if pending { Err(Error::Interrupted) } else { Ok(()) }
}
