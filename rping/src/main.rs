//! rdma-core's rping protocol on each driver of cmid, on the simulator or on a real device.
fn main() {}
