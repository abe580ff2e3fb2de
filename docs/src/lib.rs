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
    faults "faults.md",
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

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
                assert!(!included.trim().is_empty(), "{path} is empty");
                // Snippets of an included file would not be run.
                assert!(!included.contains("```rust"), "{path}");
                found += 1;
            }
        }
        assert!(found > 0);
    }

    /// Adds the cases that the Rust files below `folder` have tests of.
    fn collect(folder: &Path, cases: &mut BTreeSet<u32>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                collect(&path, cases);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let names = text.split("fn case_").skip(1);
                cases.extend(names.map(|rest| rest[..2].parse::<u32>().unwrap()));
            }
        }
    }

    #[test]
    fn every_known_fault_has_its_tests() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let mut tested = BTreeMap::<u32, Vec<String>>::new();
        let mut folders: Vec<_> = std::fs::read_dir(crates)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        folders.sort_by_key(std::fs::DirEntry::file_name);
        for folder in folders {
            let mut cases = BTreeSet::new();
            collect(&folder.path(), &mut cases);
            for case in cases {
                let name = folder.file_name().into_string().unwrap();
                tested.entry(case).or_default().push(name);
            }
        }
        let rows = include_str!("faults.md").lines().filter_map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let case = cells.get(1)?.parse::<u32>().ok()?;
            Some((case, cells[5].split(", ").map(str::to_owned).collect()))
        });
        assert_eq!(rows.collect::<BTreeMap<u32, Vec<String>>>(), tested);
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
