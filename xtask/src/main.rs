//! What a person and CI both call: demo, test, softroce.
fn main() {}
