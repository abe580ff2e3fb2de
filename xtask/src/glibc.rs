//! Which version of the C library a program needs.

use std::io;
use std::path::Path;

/// Major and minor number.
pub(crate) type Version = (u32, u32);

/// The newest version of glibc whose symbols a program names: they stand in it as `GLIBC_2.34`. `(0, 0)` for one that names none.
pub(crate) fn needed_by(program: &Path) -> io::Result<Version> {
    Ok(newest_in(&std::fs::read(program)?))
}

fn newest_in(bytes: &[u8]) -> Version {
    const TAG: &[u8] = b"GLIBC_";
    let tags = bytes.windows(TAG.len()).enumerate();
    let starts = tags
        .filter(|(_, window)| *window == TAG)
        .map(|(at, _)| at + TAG.len());
    let versions = starts.filter_map(|at| version(&bytes[at..]));
    versions.max().unwrap_or((0, 0))
}

/// The version that a text begins with, ended by a zero.
fn version(bytes: &[u8]) -> Option<Version> {
    let end = bytes.iter().take(12).position(|&byte| byte == 0)?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut numbers = text.split('.');
    let major = numbers.next()?.parse().ok()?;
    Some((major, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts_by_numbers() {
        let program = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0GLIBC_";
        assert_eq!(newest_in(program), (2, 34));
        assert_eq!(newest_in(b"static"), (0, 0));
    }

    #[test]
    fn this_program_needs_some_version() {
        let (major, minor) = needed_by(&std::env::current_exe().unwrap()).unwrap();
        assert!(major == 2 && minor < 100, "{major}.{minor}");
    }
}
