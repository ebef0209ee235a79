//! Compares docs/generated/performance.md, targets.md and the plots with the recorded results. `UPDATE_EXPECT=1` writes them.

use std::path::Path;

use cmid_bench::{report, results::Results};
use expect_test::expect_file;

#[test]
fn the_report_is_rendered_from_the_results() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace's root");
    for (name, text) in report::render(&Results::read(root)?)? {
        expect_file![root.join("docs/generated").join(name)].assert_eq(&text);
    }
    Ok(())
}
