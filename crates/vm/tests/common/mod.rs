//! Shared by the tests: files on a disk, and a process that discovery takes for a virtual machine.
//!
//! The machine is a copy of this test program under the name of one of QEMU's, because discovery goes by the
//! name of the program that a process runs. It executes commands from its standard input, one per line.

#![allow(dead_code)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) const PAGE: u64 = 4096;
/// The test that runs as the machine's program.
const PROGRAM: &str = "the_program_of_a_machine";
/// Environment variable with the machine's images, separated by colons.
const IMAGES: &str = "JUSTITIA_TEST_IMAGES";

pub(crate) struct Machine {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Machine {
    /// Starts a machine that holds these images open for reading and writing.
    pub(crate) fn start(dir: &Path, images: &[&Path]) -> Machine {
        let program = dir.join("qemu-system-test");
        if !program.exists() {
            fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        }
        let paths: Vec<_> = images.iter().map(|path| path.to_str().unwrap()).collect();
        let mut child = Command::new(&program)
            .args(["--ignored", "--exact", PROGRAM, "--nocapture"])
            .env(IMAGES, paths.join(":"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut machine = Machine {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        machine.answer();
        machine
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads pages `from..to` of an image in one call.
    pub(crate) fn read(&mut self, image: usize, from: u64, to: u64) {
        self.tell(&format!("read {image} {from} {to}"));
    }

    /// Reads pages of the first image, 64 in a call.
    pub(crate) fn read_through(&mut self, pages: Range<u64>) {
        for from in pages.clone().step_by(64) {
            self.read(0, from, pages.end.min(from + 64));
        }
    }

    /// Writes pages `from..to` of an image in one call, filled with `byte`.
    pub(crate) fn write(&mut self, image: usize, from: u64, to: u64, byte: u8) {
        self.tell(&format!("write {image} {from} {to} {byte}"));
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
        self.answer();
    }

    /// Reads up to the answer: the test harness of the machine's program prints lines too.
    fn answer(&mut self) {
        let mut line = String::new();
        while !line.ends_with("@done\n") {
            line.clear();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "it ended");
        }
    }

    /// Ends the machine like a power failure: SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The machine's program.
pub(crate) fn be_a_machine() {
    let Ok(images) = std::env::var(IMAGES) else {
        return;
    };
    let open = |path| File::options().read(true).write(true).open(path).unwrap();
    let images: Vec<File> = images.split(':').map(open).collect();
    println!("@done");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let (image, from) = (&images[number(1) as usize], number(2) * PAGE);
        let mut bytes = vec![0; (number(3) * PAGE - from) as usize];
        if words[0] == "read" {
            image.read_exact_at(&mut bytes, from).unwrap();
        } else {
            bytes.fill(number(4) as u8);
            image.write_all_at(&bytes, from).unwrap();
        }
        println!("@done");
    }
}

/// A temporary directory. It is on a disk unless the system's directory for temporary files is a tmpfs.
pub(crate) fn scratch() -> tempfile::TempDir {
    let dir = std::env::temp_dir();
    tempfile::tempdir_in(dir).unwrap()
}

/// A machine with one image of this many pages, in a directory of its own.
pub(crate) fn with_one_image(pages: u64) -> (tempfile::TempDir, PathBuf, Machine) {
    let dir = scratch();
    let path = image(dir.path(), "disk", pages);
    let machine = Machine::start(dir.path(), &[&path]);
    (dir, path, machine)
}

/// The next number of a sequence that looks random.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// An image of `pages` pages, written back and dropped from the page cache.
pub(crate) fn image(dir: &Path, name: &str, pages: u64) -> PathBuf {
    let path = dir.join(name);
    let mut file = File::create(&path).unwrap();
    for page in 0..pages {
        file.write_all(&[page as u8; PAGE as usize]).unwrap();
    }
    cool(&file);
    path
}

/// Writes a file back and drops it from the page cache.
pub(crate) fn cool(file: &File) {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

pub(crate) fn contents(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Reads pages into the page cache from a process that is not a machine. Later requests of a machine then hit
/// the cache, and each tier counts them exactly.
pub(crate) fn warm(path: &Path, from: u64, to: u64) {
    let mut bytes = vec![0; ((to - from) * PAGE) as usize];
    let file = File::open(path).unwrap();
    file.read_exact_at(&mut bytes, from * PAGE).unwrap();
}
