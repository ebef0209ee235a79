//! Checks that the core allocates nothing once its tables have grown, and that an idle id takes no more than its
//! limit.
//!
//! One test in a process of its own: the allocator counts for all threads.

use cmid_bench::limits::{ALLOCATIONS, OBJECTS};
use cmid_bench::memory::{self, Allocator};

#[global_allocator]
static ALLOCATOR: &Allocator = &stats_alloc::INSTRUMENTED_SYSTEM;

#[test]
fn steps_allocate_nothing_and_ids_are_small() {
    // Checks the measurement itself: an allocation is counted.
    let seen = stats_alloc::Region::new(ALLOCATOR);
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert!(seen.change().allocations > 0);

    for (level, cases) in memory::allocations(ALLOCATOR) {
        assert!(cases.contains_key("active_life") && cases.contains_key("passive_life"));
        for (case, count) in cases {
            assert_eq!(count, ALLOCATIONS, "allocations in {} steps: {case}, {level}", memory::STEPS);
        }
    }
    let limit = OBJECTS.iter().find(|object| object.name == "id").expect("a row").limit;
    let bytes = memory::bytes_per_id(ALLOCATOR, memory::OBJECTS);
    assert!(bytes <= limit, "{bytes} bytes per idle id; the limit is {limit}");
    assert!(bytes > 64, "{bytes} bytes per idle id: not measured");
}
