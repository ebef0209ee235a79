//! cmid in a mio Poll that the user owns.
