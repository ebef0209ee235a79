//! A simulated RDMA fabric: hosts with a Device each, seeded, in virtual or real time.
