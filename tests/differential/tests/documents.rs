//! Compares `docs/generated/differences.md` with the code. `UPDATE_EXPECT=1` writes the file.

use cmid_differential::differences::render;
use expect_test::expect_file;

#[test]
fn differences_md_is_what_the_lists_say() {
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/generated/differences.md")].assert_eq(&render());
}
