//! The memory target on inputs of a generator: a work request in flight is copied to its memory by the poll.

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[test]
fn no_poll_writes_to_memory_that_was_let_go() {
    let run = cmid_model::TARGETS.iter().find(|target| target.name == "rereg").expect("a target").run;
    for seed in 0..20_000 {
        let mut dice = Dice(seed);
        let input: Vec<u8> = (0..64).flat_map(|_| dice.roll().to_le_bytes()).collect();
        run(&input);
    }
}
