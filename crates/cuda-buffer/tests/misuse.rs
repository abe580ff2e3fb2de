//! Programs that must not compile, one for each promise that a lifetime or a bound keeps.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
