//! The Device over librdmacm and libibverbs, and a safe data path.
