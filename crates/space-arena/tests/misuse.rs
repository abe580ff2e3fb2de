//! Programs that must not compile, one for each promise that a lifetime or a bound keeps.
//!
//! `carve_used_after_retract` is what became of bump-scope#129, where a rewind freed what was
//! reached from before it, and `carve_used_after_reset` of bump-scope#137.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
