//! The pure core: the rdma_cm_id life cycle, event channels, migration, synchronous mode and deadlines, without I/O.
