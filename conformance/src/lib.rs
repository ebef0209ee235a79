//! One conformance suite for every driver, on the simulator and on a real kernel.
