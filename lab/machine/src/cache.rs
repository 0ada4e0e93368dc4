//! The lab's cache: kernels, images and scratch space below `$XDG_CACHE_HOME/justitia/lab`.
//!
//! ```text
//! lock            held (flock) while something is fetched or built
//! apt/SUITE/      private apt state, one per suite
//! kernels/SERIES/ vmlinuz, modules/, manifest.json with the SHA-256 of each
//! images/         root and tools images, each with its SHA-256 in NAME.sha256
//! run/            disks of running guests; removed with the run, or by the next run
//! ```
//!
//! Invariants: a finished artifact has its final name and its checksum (it is built under another name and
//! renamed). Its checksum is verified at every use; a damaged artifact is discarded and rebuilt. To get a
//! newer kernel, remove its directory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{flock, FlockOperation};
use sha2::{Digest, Sha256};

use crate::error::{LabError, OrCannot, Result, Say};

/// Images unused for this long are removed.
const IMAGE_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// Above this size in total, the longest-unused images are removed, bytes. A full set of roots, databases and
/// tools is about 3 GB; every build of the tools adds 10 to 300 MB.
const IMAGES_KEPT: u64 = 8 << 30;

/// An image used this recently may belong to a run that is about to start.
const IMAGE_IN_USE: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// The cache while nobody else may change it; released when dropped.
#[derive(Debug)]
pub struct LockedCache {
    cache: Cache,
    _file: File,
}

impl Deref for LockedCache {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

/// Scratch space of one run, removed when dropped.
#[derive(Debug)]
pub struct RunDir {
    dir: tempfile::TempDir,
    _lock: File,
}

impl RunDir {
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Cache {
    /// The user's cache: `$XDG_CACHE_HOME/justitia/lab`, or below `~/.cache`.
    pub fn open() -> Result<Self> {
        let base = absolute_env("XDG_CACHE_HOME")
            .or_else(|| absolute_env("HOME").map(|home| home.join(".cache")))
            .ok_or_else(|| {
                LabError::environment(
                    "neither XDG_CACHE_HOME nor HOME is set, so there is no place for the cache",
                    "set XDG_CACHE_HOME to a directory with a few gigabytes of room",
                )
            })?;
        Self::at(&base.join("justitia").join("lab"))
    }

    /// A cache at the given path.
    pub fn at(root: &Path) -> Result<Self> {
        let cache = Self {
            root: root.to_owned(),
        };
        for dir in ["apt", "kernels", "images", "run"] {
            let path = cache.path(dir);
            fs::create_dir_all(&path).or_cannot("create", &path)?;
        }
        Ok(cache)
    }

    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Waits until the cache is free and locks it.
    pub fn lock(&self, progress: &mut Say) -> Result<LockedCache> {
        let path = self.path("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .or_cannot("open", &path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            progress("waiting for another run that is preparing the cache");
            flock(&file, FlockOperation::LockExclusive).or_cannot("lock", &path)?;
        }
        Ok(LockedCache {
            cache: self.clone(),
            _file: file,
        })
    }

    /// Creates scratch space. Also removes leftovers of runs that were killed.
    pub fn run_dir(&self) -> Result<RunDir> {
        let base = self.path("run");
        sweep_runs(&base);
        let dir = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(&base)
            .or_cannot("create a directory in", &base)?;
        let lock_path = dir.path().join("lock");
        let lock = File::create(&lock_path).or_cannot("create", &lock_path)?;
        flock(&lock, FlockOperation::LockExclusive).or_cannot("lock", &lock_path)?;
        Ok(RunDir { dir, _lock: lock })
    }

    /// The image `name` if it exists and its checksum is right; marks it as used now.
    pub fn verified_image(&self, name: &str) -> Result<Option<PathBuf>> {
        let path = self.path("images").join(name);
        let Ok(expected) = fs::read_to_string(sums_path(&path)) else {
            return Ok(None);
        };
        if !path.exists() || sha256_file(&path)? != expected.trim() {
            return Ok(None);
        }
        // Only the pruning below reads these times; at worst, a failure costs a rebuild.
        let _ = File::options()
            .append(true)
            .open(&path)
            .and_then(|file| file.set_modified(SystemTime::now()));
        Ok(Some(path))
    }

    /// Moves a finished image to its name and records its checksum; prunes long-unused images.
    pub fn adopt_image(&self, built: &Path, name: &str) -> Result<PathBuf> {
        let images = self.path("images");
        prune(&images, IMAGES_KEPT);
        let path = images.join(name);
        let sums = sums_path(&path);
        fs::write(&sums, sha256_file(built)?).or_cannot("write", &sums)?;
        fs::rename(built, &path).or_cannot("rename", &path)?;
        Ok(path)
    }
}

/// Removes the directories of killed runs: those whose lock nobody holds. The minute of grace covers the
/// time between the creation of a directory and its lock.
fn sweep_runs(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        let free = match File::open(path.join("lock")) {
            Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if free && older_than(&path, Duration::from_secs(60)) {
            // Another run may sweep at the same time.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Removes images unused for [`IMAGE_LIFETIME`], and above `kept` bytes in total the longest-unused ones,
/// except those that may be in use.
fn prune(images: &Path, kept: u64) {
    let mut found: Vec<(PathBuf, Duration, u64)> = fs::read_dir(images)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "img"))
        .filter_map(|path| {
            let metadata = fs::metadata(&path).ok()?;
            // A time in the future was set before the clock was set back.
            let unused = metadata.modified().ok()?.elapsed().unwrap_or_default();
            // Images are sparse: their disk usage is their blocks of 512 bytes.
            Some((path, unused, metadata.blocks() * 512))
        })
        .collect();
    found.sort_by_key(|(_, unused, _)| *unused);
    let mut sum = 0;
    for (path, unused, bytes) in found {
        sum += bytes;
        if unused > IMAGE_LIFETIME || (sum > kept && unused > IMAGE_IN_USE) {
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(sums_path(&path));
        }
    }
}

/// SHA-256 of a file, lower-case hexadecimal.
pub fn sha256_file(path: &Path) -> Result<String> {
    let mut file = File::open(path).or_cannot("open", path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex(&hasher.finalize())),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(LabError::io("read", path, error)),
        }
    }
}

/// SHA-256 of bytes, lower-case hexadecimal.
pub fn sha256_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn sums_path(image: &Path) -> PathBuf {
    image.with_extension("sha256")
}

fn older_than(path: &Path, age: Duration) -> bool {
    fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|modified| modified.elapsed().is_ok_and(|elapsed| elapsed > age))
}

fn absolute_env(key: &str) -> Option<PathBuf> {
    std::env::var_os(key)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_used_only_while_its_checksum_holds() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        assert_eq!(cache.verified_image("a.img").unwrap(), None);
        let built = dir.path().join("built");
        fs::write(&built, "content").unwrap();
        let path = cache.adopt_image(&built, "a.img").unwrap();
        assert_eq!(cache.verified_image("a.img").unwrap(), Some(path.clone()));
        fs::write(&path, "damaged").unwrap();
        assert_eq!(cache.verified_image("a.img").unwrap(), None);
    }

    #[test]
    fn images_beyond_the_room_go_the_unused_ones_first() {
        const MINUTE: u64 = 60;
        let dir = tempfile::tempdir().unwrap();
        let image = |name: &str, minutes: u64| {
            let path = dir.path().join(format!("{name}.img"));
            fs::write(&path, vec![1; 100 << 10]).unwrap();
            fs::write(sums_path(&path), "sum").unwrap();
            let used = SystemTime::now() - Duration::from_secs(minutes * MINUTE);
            let file = File::options().append(true).open(&path).unwrap();
            file.set_modified(used).unwrap();
        };
        let left = || {
            let mut names: Vec<String> = fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        for (name, minutes) in [
            ("a month", 31 * 24 * 60),
            ("hours", 180),
            ("two hours", 120),
            ("just", 1),
        ] {
            image(name, minutes);
        }
        prune(dir.path(), 250 << 10);
        let expected = [
            "just.img",
            "just.sha256",
            "two hours.img",
            "two hours.sha256",
        ];
        assert_eq!(left(), expected, "room for two");
        prune(dir.path(), 0);
        assert_eq!(left(), expected[..2], "what may be in use stays");
    }

    #[test]
    fn run_directories_vanish_with_their_run() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        let run = cache.run_dir().unwrap();
        let path = run.path().to_owned();
        let other = cache.run_dir().unwrap();
        assert!(path.exists(), "a live run is not swept");
        drop(run);
        assert!(!path.exists());
        drop(other);
    }
}
