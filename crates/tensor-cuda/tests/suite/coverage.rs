//! That no operation is left out of the tests against `ndarray`.

/// The functions that the crate exports, as its root lists them.
fn operations() -> Vec<&'static str> {
    let root = include_str!("../../src/lib.rs");
    let exports = root.split("pub use ").skip(1);
    let names = exports.flat_map(|export| {
        let list = export.split(';').next().unwrap_or_default();
        let list = list.split_once("::").map_or(list, |(_, list)| list);
        list.split(|c: char| !c.is_alphanumeric() && c != '_')
    });
    let functions = names.filter(|name| name.starts_with(|c: char| c.is_lowercase()));
    functions
        .filter(|name| !matches!(*name, "cuda_buffer" | "as" | "buffer"))
        .collect()
}

#[test]
fn every_public_operation_has_a_property_test() {
    let properties = [
        include_str!("elementwise.rs"),
        include_str!("products.rs"),
        include_str!("reductions.rs"),
        include_str!("transfers.rs"),
    ];
    let operations = operations();
    assert!(operations.len() >= 27, "{operations:?}");
    for operation in operations {
        let call = format!("{operation}(");
        let called = |text: &str| {
            let before = |at: usize| text[..at].chars().next_back();
            let mut calls = text.match_indices(&call);
            calls.any(|(at, _)| before(at).is_none_or(|c| !c.is_alphanumeric() && c != '_'))
        };
        assert!(
            properties.iter().any(|text| called(text)),
            "{operation} is not tested against the host"
        );
    }
}
