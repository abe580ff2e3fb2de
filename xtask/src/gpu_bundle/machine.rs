//! Folders of the machine that builds. A program that names one opens something in it, which another machine does not have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::programs::Entry;
use super::{failed, folder};
use crate::failure::Failure;
use crate::workspace;

/// How sources put such a folder into a program.
const WAYS: [&str; 4] = [
    "env!(\"CARGO_MANIFEST_DIR\")",
    "env!(\"CARGO_TARGET_TMPDIR\")",
    "env!(\"OUT_DIR\")",
    "env!(\"CARGO_BIN_EXE_",
];

/// Refuses what the sources of the programs show, before anything is built: all of it at once.
pub(super) fn check_sources<'e>(entries: impl Iterator<Item = &'e Entry>) -> Result<(), Failure> {
    let mut files = BTreeSet::new();
    let mut allowed = Vec::new();
    for entry in entries {
        let sources = entry.sources();
        if entry.has_data_beside() {
            allowed.push(sources.join(entry.target.1));
        }
        match sources.is_dir() {
            true => {
                let within = folder::listing(&sources).map_err(|error| failed(&sources, &error))?;
                files.extend(within.into_keys());
            }
            false => drop(files.insert(sources)),
        }
    }
    files.retain(|file| file.extension().is_some_and(|end| end == "rs"));
    files.retain(|file| !allowed.iter().any(|folder| file.starts_with(folder)));
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| failed(&file, &error))?;
        let ways = WAYS.iter().filter(|way| text.contains(**way));
        found.extend(ways.map(|way| format!("{} has {way}", file.display())));
    }
    refuse(&found)
}

/// Refuses programs that name a folder: all of them at once.
pub(super) fn check<'e>(
    programs: impl Iterator<Item = (&'e Entry, PathBuf)>,
) -> Result<(), Failure> {
    let target = workspace::target_folder();
    let target = std::path::absolute(&target).unwrap_or(target);
    let mut found = Vec::new();
    for (entry, program) in programs {
        let bytes = std::fs::read(&program).map_err(|error| failed(&program, &error))?;
        let own = entry.package_folder();
        let allowed = entry.has_data_beside().then_some(own.as_path());
        for folder in [workspace::root(), &target] {
            let named = named(&bytes, folder, allowed);
            found.extend(named.map(|name| format!("{} names {name}", entry.place)));
        }
    }
    refuse(&found)
}

fn refuse(found: &[String]) -> Result<(), Failure> {
    match found {
        [] => Ok(()),
        _ => Err(Failure::Check(format!(
            "what is named is not on another machine:\n    {}",
            found.join("\n    ")
        ))),
    }
}

/// The first text that begins with a folder and not with the one that is allowed, as far as it can be read.
fn named(bytes: &[u8], folder: &Path, allowed: Option<&Path>) -> Option<String> {
    let of = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    let (folder, allowed) = (of(folder), allowed.map(of));
    let mut starts = (0..bytes.len()).map(|at| &bytes[at..]).filter(|rest| {
        let allowed = allowed.as_ref().is_some_and(|path| rest.starts_with(path));
        rest.starts_with(&folder) && !allowed
    });
    let readable = |byte: &&u8| byte.is_ascii_graphic() || **byte == b' ';
    let text = starts.next()?.iter().take_while(readable);
    // Texts of a program follow each other without a mark.
    Some(
        text.take(folder.len() + 40)
            .map(|&byte| char::from(byte))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::programs::{BENCHMARKS, CHECKS, test};
    use super::*;

    fn digits() -> &'static Entry {
        let mut entries = CHECKS.iter();
        entries.find(|entry| entry.has_data_beside()).unwrap()
    }

    #[test]
    fn every_program_that_names_a_folder_is_refused() {
        let place = std::env::temp_dir().join(format!("carve-named-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let (root, target) = (workspace::root(), workspace::target_folder());
        let target = std::path::absolute(target).unwrap();
        let written: Vec<_> = [
            ("good", "nothing".to_owned()),
            ("root", format!("{}/crates/x", root.display())),
            ("target", format!("{}/tmp", target.display())),
        ]
        .map(|(name, text)| {
            let path = place.join(name);
            std::fs::write(&path, format!("\0{text}\0more")).unwrap();
            path
        })
        .into();
        let of = |paths: &[PathBuf]| check(BENCHMARKS.iter().zip(paths.to_vec()));
        let good = of(&written[..1]);
        let refused = of(&written).unwrap_err().to_string();
        std::fs::remove_dir_all(&place).unwrap();
        good.unwrap();
        for (entry, text) in [
            (&BENCHMARKS[1], format!("{}/crates/x\n", root.display())),
            (&BENCHMARKS[2], format!("{}/tmp", target.display())),
        ] {
            let line = format!("{} names {text}", entry.place);
            assert!(refused.contains(&line), "{line}: {refused}");
        }
        assert!(!refused.contains(BENCHMARKS[0].place), "{refused}");
    }

    /// A program with its data beside it may name the folder of its package, and no other.
    #[test]
    fn data_beside_a_program_excuses_one_folder() {
        let (own, root) = (digits().package_folder(), workspace::root());
        let text = format!("\0{}data", own.display());
        let named = |text: &str, own| named(text.as_bytes(), root, own);
        assert_eq!(named(&text, Some(&own)), None);
        assert!(named(&text, None).is_some());
        let other = root.join("crates/other").display().to_string();
        assert_eq!(named(&(text + &other), Some(&own)), Some(other));
    }

    #[test]
    fn sources_that_name_a_folder_are_refused() {
        check_sources(CHECKS.iter().chain(BENCHMARKS)).unwrap();
        // A test that writes into a folder of the machine, and is no program of the bundle for that.
        let digits = test("tensor-cuda", ("--test", "digits"), "tests/digits");
        let refused = check_sources([digits].iter()).unwrap_err().to_string();
        assert!(
            refused.contains("tests/digits.rs has env!(\"CARGO_TARGET_TMPDIR\")"),
            "{refused}"
        );
    }
}
