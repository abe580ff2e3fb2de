//! Programs that must not compile, one for each promise that the compiler keeps.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
