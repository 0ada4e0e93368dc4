//! Finds the files to read: the named ones, and all below named directories.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use justitia_agent::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// Finds files in the order of `paths`, with directories sorted by name. A file with several names is found
/// once.
pub(super) fn find(paths: &[PathBuf]) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for path in paths {
        // Follow symbolic links that were named.
        let metadata = fs::metadata(path).map_err(|error| Error::io("read", path, &error))?;
        walk(path, &metadata, &mut seen, &mut found)?;
    }
    if found.is_empty() {
        return Err(Error::failed(
            "there is no regular file to read",
            "name files, or directories that hold some",
        ));
    }
    Ok(found)
}

fn walk(
    path: &Path,
    metadata: &Metadata,
    seen: &mut BTreeSet<(u64, u64)>,
    found: &mut Vec<Found>,
) -> Result<()> {
    if !seen.insert((metadata.dev(), metadata.ino())) {
        return Ok(());
    }
    if metadata.is_file() {
        found.push(Found {
            path: path.to_owned(),
            bytes: metadata.len(),
        });
    } else if metadata.is_dir() {
        let cannot = |error| Error::io("list", path, &error);
        let mut entries = fs::read_dir(path)
            .map_err(cannot)?
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(cannot)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            // The metadata of the entry itself: links inside directories are not followed. Entries that
            // vanished are skipped.
            if let Ok(metadata) = entry.metadata() {
                walk(&entry.path(), &metadata, seen, found)?;
            }
        }
    }
    Ok(())
}
