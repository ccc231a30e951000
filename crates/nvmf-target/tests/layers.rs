//! The modules of this crate depend on each other without a circle, so that each can be read, and moved, without those above it.

#[path = "../../nvmf-proto/tests/modules/mod.rs"]
mod modules;

#[test]
fn modules_depend_on_each_other_without_a_circle() {
    modules::assert_no_circle(env!("CARGO_MANIFEST_DIR"), (30, 60));
}
