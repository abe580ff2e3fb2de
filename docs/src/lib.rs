//! The chapters of the book and the README as doctests. Nothing else is in this crate.
//!
//! A chapter that is missing here is found by a test:
//!
//! ```
//! assert!(carve_book::CHAPTERS.contains(&"introduction.md"));
//! ```

#![forbid(unsafe_code)]

macro_rules! chapters {
    ($($name:ident $file:literal),* $(,)?) => {
        /// The files of the chapters, whose snippets are tested.
        pub const CHAPTERS: &[&str] = &[$($file),*];

        $(#[cfg(doctest)]
        #[doc = include_str!($file)]
        mod $name {})*
    };
}

chapters! {
    introduction "introduction.md",
    vocabulary "vocabulary.md",
    spaces "spaces.md",
    arrays "arrays.md",
    driver "driver.md",
    testing "testing.md",
    streams "streams.md",
    buffers "buffers.md",
    capture "capture.md",
    tensors "tensors.md",
    asynchronous "async.md",
    costs "costs.md",
    carves "carves.md",
    hardware "hardware.md",
}

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

#[cfg(test)]
mod tests {
    use super::CHAPTERS;

    /// Files that the summary links to.
    fn linked() -> Vec<&'static str> {
        let summary = include_str!("SUMMARY.md");
        let parts = summary.split("](").skip(1);
        parts.filter_map(|rest| rest.split(')').next()).collect()
    }

    #[test]
    fn every_chapter_of_the_summary_is_tested_and_no_other() {
        assert_eq!(linked(), CHAPTERS);
    }

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

    /// A path that is wrong would be left in the book as it is.
    #[test]
    fn what_chapters_include_is_there() {
        let mut found = 0;
        for chapter in CHAPTERS {
            let text = std::fs::read_to_string(format!("{FOLDER}/{chapter}")).unwrap();
            let paths = text.split("{{#include ").skip(1);
            for path in paths.filter_map(|rest| rest.split("}}").next()) {
                let included = std::fs::read_to_string(format!("{FOLDER}/{path}"));
                let included = included.unwrap_or_else(|error| panic!("{path}: {error}"));
                assert!(included.starts_with("# "), "{path} has a heading");
                // Snippets of an included file would not be run.
                assert!(!included.contains("```rust"), "{path}");
                found += 1;
            }
        }
        assert!(found > 0);
    }

    #[test]
    fn every_file_is_a_chapter() {
        let folder = FOLDER;
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let known = CHAPTERS.contains(&name.as_str())
                || ["lib.rs", "SUMMARY.md"].contains(&name.as_str());
            assert!(known, "{name} is in docs/src but not in the summary");
        }
    }
}
