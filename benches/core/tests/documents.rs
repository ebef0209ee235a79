//! Compares docs/generated/performance.md and targets.md with the recorded results. `UPDATE_EXPECT=1` writes them.

use std::fs;
use std::path::Path;

use cmid_bench::{report, results::Results};
use expect_test::expect_file;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace's root")
}

#[test]
fn the_report_is_rendered_from_the_results() -> anyhow::Result<()> {
    for (name, text) in report::render(&Results::read(root())?)? {
        expect_file![root().join("docs/generated").join(name)].assert_eq(&text);
    }
    Ok(())
}

#[test]
fn readme_has_the_figures_of_a_write_that_the_report_has() -> anyhow::Result<()> {
    let report = fs::read_to_string(root().join("docs/generated/performance.md"))?;
    let (_, table) = report.split_once("## Against other crates").expect("the section");
    let [cmid, c, classic, sideway, slow, rdma_io] = [
        "cmid",
        "C, ibv_wr_post(3)",
        "C, classic calls",
        "sideway 0.4.3, ibv_wr_post(3)",
        "sideway 0.4.3, classic calls",
        "rdma-io 0.0.2, classic calls",
    ]
    .map(|row| table.lines().find_map(|line| line.strip_prefix(&format!("| {row} | "))?.split(' ').next()).expect(row));
    let row = format!("| {cmid} / – | {c} / {classic} | sideway: {sideway} / {slow}; rdma-io: – / {rdma_io} |");
    assert!(fs::read_to_string(root().join("README.md"))?.contains(&row), "README.md has not: {row}");
    Ok(())
}
