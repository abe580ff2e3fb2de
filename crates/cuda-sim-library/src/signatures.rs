//! Compares every exported function with the declarations of `cust_raw` and `cudarc`.

#[test]
fn every_function_has_the_declared_signature() {
    let mut compared = 0;
    for export in crate::export::all() {
        assert_eq!((export.ours)(), (export.theirs)(), "{}", export.name);
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
}
