//! The accounting of the work requests in flight, which pin the memory that they name: in_flight.rs describes it. It
//! makes no calls. `tests/model` compiles it too, so it uses nothing of this crate but itself.

pub(crate) mod cq_slots;
pub(crate) mod in_flight;
pub(crate) mod kind;
pub(crate) mod poll;
pub(crate) mod retire;
#[cfg(test)]
mod retire_tests;
pub(crate) mod rings;
pub(crate) mod slot_cache;
pub(crate) mod srq_slots;
#[cfg(test)]
mod srq_slots_tests;
pub(crate) mod srq_table;
mod sync;
pub(crate) mod work_queue;
pub(crate) mod wr_ring;
#[cfg(test)]
mod wr_ring_tests;
