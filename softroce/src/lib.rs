//! Runs a command in a small VM whose kernel has soft-RoCE.
