//! Folders as a whole.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of all files in a folder.
pub(super) fn size(folder: &Path) -> io::Result<u64> {
    std::fs::read_dir(folder)?.try_fold(0, |sum, entry| {
        let entry = entry?;
        let metadata = entry.metadata()?;
        Ok(sum
            + match metadata.is_dir() {
                true => size(&entry.path())?,
                false => metadata.len(),
            })
    })
}

/// Copies a folder with what is in it, and who may run it. Links stay links.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(entry.path())?, target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Every file and folder within a folder, with its size.
pub(super) fn listing(folder: &Path) -> io::Result<BTreeMap<PathBuf, u64>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let directory = entry.file_type()?.is_dir();
        found.insert(
            entry.path(),
            if directory {
                0
            } else {
                entry.metadata()?.len()
            },
        );
        if directory {
            found.append(&mut listing(&entry.path())?);
        }
    }
    Ok(found)
}

/// Grants or takes the right to write to a folder and the folders in it.
pub(super) fn set_writable(folder: &Path, writable: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = if writable { 0o755 } else { 0o555 };
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode))?;
    std::fs::read_dir(folder)?.try_for_each(|entry| {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => set_writable(&entry.path(), writable),
            false => Ok(()),
        }
    })
}
