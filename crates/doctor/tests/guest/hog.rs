//! The load in a group: this program again, with its job in an environment variable.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use super::scene::{set, MIB};

/// Environment variable with the job.
const ORDER: &str = "JUSTITIA_HOG";

/// A job to run in a group. Sizes in bytes.
pub(crate) enum Job {
    /// Hold this much anonymous memory.
    Hold(u64),
    /// Hold this much anonymous memory, and read a file over and over.
    Read(u64, PathBuf),
    /// Allocate this much more anonymous memory each second, up to 300 MiB.
    Grow(u64),
    /// Write a file of this size over and over, with fsync.
    Rewrite(u64, PathBuf),
}

impl Job {
    fn order(&self) -> String {
        match self {
            Job::Hold(bytes) => format!("hold {bytes} -"),
            Job::Read(bytes, file) => format!("read {bytes} {}", file.display()),
            Job::Grow(bytes) => format!("grow {bytes} -"),
            Job::Rewrite(bytes, file) => format!("rewrite {bytes} {}", file.display()),
        }
    }
}

/// Not a test: the program of a [`Hog`].
#[test]
#[ignore = "needs root on a cgroup2 host; what the others run in a group"]
fn hog() {
    let Some(order) = std::env::var(ORDER).ok() else {
        return;
    };
    let mut parts = order.splitn(4, ' ');
    let mut next = || parts.next().unwrap();
    let (group, what) = (next(), next());
    let (bytes, file) = (next().parse::<u64>().unwrap(), Path::new(next()));
    set(Path::new(group).join("cgroup.procs"), "0");
    match what {
        "hold" => {
            let held = vec![1u8; bytes as usize];
            std::thread::sleep(Duration::from_secs(100_000));
            assert_eq!(held.len() as u64, bytes, "it is still used");
        }
        "read" => {
            let held = vec![1u8; bytes as usize];
            let mut chunk = vec![0; MIB as usize];
            loop {
                let mut file = fs::File::open(file).unwrap();
                while file.read(&mut chunk).unwrap() > 0 {
                    assert_eq!(held.len() as u64, bytes, "it is still used");
                }
            }
        }
        "grow" => {
            let mut held = Vec::new();
            loop {
                std::thread::sleep(Duration::from_millis(100));
                if held.len() as u64 * bytes / 10 < 300 * MIB {
                    held.push(vec![1u8; (bytes / 10) as usize]);
                }
            }
        }
        "rewrite" => loop {
            write_once(file, bytes);
        },
        other => panic!("{other} is no job"),
    }
}

/// Writes a file and syncs it.
fn write_once(path: &Path, bytes: u64) {
    let mut file = fs::File::create(path).unwrap();
    let chunk = vec![7; MIB as usize];
    for _ in 0..bytes / MIB {
        file.write_all(&chunk).unwrap();
    }
    file.sync_all().unwrap();
}

/// Runs `work` in a group, which is charged for the page cache.
pub(crate) fn within(group: &Path, work: impl FnOnce()) {
    set(group.join("cgroup.procs"), "0");
    work();
    set(super::scene::mount().join("cgroup.procs"), "0");
}

/// Writes a file whose pages are clean and charged to a group.
pub(crate) fn cached(group: &Path, path: &Path, bytes: u64) {
    within(group, || write_once(path, bytes));
}

/// Writes a file whose pages are dirty and charged to a group.
pub(crate) fn dirty(group: &Path, path: &Path, bytes: u64) {
    within(group, || fs::write(path, vec![7; bytes as usize]).unwrap());
}

/// A process that runs a job.
pub(crate) struct Hog(Child);

impl Hog {
    pub(crate) fn start(group: &Path, job: &Job) -> Hog {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "hog::hog", "--ignored"])
            .env(ORDER, format!("{} {}", group.display(), job.order()))
            .spawn()
            .unwrap();
        Hog(child)
    }

    /// Waits until it exits or is killed.
    pub(crate) fn wait(mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
