//! docs/generated/performance.md is what was measured.

use std::path::Path;

#[test]
fn the_report_is_rendered_from_the_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace's root");
    if let Err(error) = cmid_bench::report::check(root) {
        panic!("{error:#}");
    }
}
