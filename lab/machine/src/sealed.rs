//! A finished directory of the cache: its manifest has the SHA-256 of every file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cache::sha256_file;
use crate::error::{LabError, OrCannot, Result};

const MANIFEST: &str = "manifest.json";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sealed {
    #[serde(skip)]
    pub(crate) dir: PathBuf,
    /// Of a kernel: `uname -r`.
    pub(crate) release: Option<String>,
    /// Path below the directory -> SHA-256.
    pub(crate) files: BTreeMap<String, String>,
}

impl Sealed {
    /// Seals `staging` and moves it to `dir`, in place of what is there.
    pub(crate) fn seal(staging: &Path, dir: &Path, release: Option<String>) -> Result<Self> {
        let mut files = BTreeMap::new();
        collect_sums(staging, staging, &mut files)?;
        let sealed = Self {
            dir: dir.to_owned(),
            release,
            files,
        };
        let text = serde_json::to_string_pretty(&sealed).expect("a manifest is plain data");
        let path = staging.join(MANIFEST);
        fs::write(&path, text).or_cannot("write", &path)?;
        // Already gone or damaged: the rename needs the name free, and its parent.
        let _ = fs::remove_dir_all(dir);
        let parent = dir.parent().unwrap_or(dir);
        fs::create_dir_all(parent).or_cannot("create", parent)?;
        fs::rename(staging, dir).or_cannot("create", dir)?;
        Ok(sealed)
    }

    /// The directory that was sealed at `dir`. Verifies no file.
    pub(crate) fn open(dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(dir.join(MANIFEST)).ok()?;
        // Earlier versions had another key for a directory of packages.
        let sealed: Self = serde_json::from_str(&text)
            .or_else(|_| serde_json::from_str(&text.replacen("packages", "files", 1)))
            .ok()?;
        Some(Self {
            dir: dir.to_owned(),
            ..sealed
        })
    }

    /// The absolute path of a file whose checksum was verified.
    pub(crate) fn verified(&self, relative: &str) -> Result<PathBuf> {
        let path = self.dir.join(relative);
        let expected = self.files.get(relative);
        if expected.is_some_and(|sum| sha256_file(&path).is_ok_and(|actual| &actual == sum)) {
            return Ok(path);
        }
        Err(LabError::environment(
            format!("{} has changed since it was fetched", path.display()),
            format!("remove {} and run this again", self.dir.display()),
        ))
    }

    /// The absolute paths of all files, verified.
    pub(crate) fn all_verified(&self) -> Result<Vec<PathBuf>> {
        self.files.keys().map(|path| self.verified(path)).collect()
    }
}

fn collect_sums(base: &Path, dir: &Path, files: &mut BTreeMap<String, String>) -> Result<()> {
    let entries = fs::read_dir(dir).or_cannot("list", dir)?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect_sums(base, &path, files)?;
        } else if let Ok(relative) = path.strip_prefix(base) {
            files.insert(relative.to_string_lossy().into_owned(), sha256_file(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_refused_and_the_others_are_not() {
        let cache = tempfile::tempdir().unwrap();
        let (staging, dir) = (cache.path().join("new"), cache.path().join("kernels/k"));
        fs::create_dir_all(staging.join("modules")).unwrap();
        fs::write(staging.join("vmlinuz"), "k").unwrap();
        fs::write(staging.join("modules/a.ko"), "a").unwrap();
        Sealed::seal(&staging, &dir, Some("6.1".into())).unwrap();
        let sealed = Sealed::open(&dir).unwrap();
        assert_eq!(sealed.release.as_deref(), Some("6.1"));
        let paths = [dir.join("modules/a.ko"), dir.join("vmlinuz")];
        assert_eq!(sealed.all_verified().unwrap(), paths);
        fs::write(&paths[1], "x").unwrap();
        assert_eq!(sealed.verified("vmlinuz").unwrap_err().exit_code(), 69);
        assert!(sealed.all_verified().is_err());
        assert!(sealed.verified("modules/a.ko").is_ok());
    }

    #[test]
    fn what_an_earlier_version_sealed_stays_usable() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "").unwrap();
        let sum = sha256_file(&dir.path().join("a")).unwrap();
        for text in [
            format!(r#"{{"packages": {{"a": "{sum}"}}}}"#),
            format!(r#"{{"release": "r", "packages": ["a 1"], "files": {{"a": "{sum}"}}}}"#),
        ] {
            fs::write(dir.path().join(MANIFEST), text).unwrap();
            assert_eq!(
                Sealed::open(dir.path()).unwrap().all_verified().unwrap(),
                [dir.path().join("a")]
            );
        }
    }
}
