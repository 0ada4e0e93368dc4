//! A FUSE file system of one file, `file`, which the server holds in memory (`include/uapi/linux/fuse.h`).

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::thread::JoinHandle;

use rustix::mount::{mount, unmount, MountFlags, UnmountFlags};

/// The answer to requests that the server does not know.
const ENOSYS: i32 = -libc::ENOSYS;
/// Bytes of a request's header.
const HEADER: usize = 40;
/// The kernel may send writes of more than one page.
const BIG_WRITES: u32 = 1 << 5;
/// The kernel keeps written pages, and writes them back later.
const WRITEBACK_CACHE: u32 = 1 << 16;

/// The mounted file system.
pub(crate) struct Fuse {
    dir: tempfile::TempDir,
    server: Option<JoinHandle<()>>,
}

impl Fuse {
    /// Mounts it. `writeback`: with the page cache of writes, otherwise writes go through to the server.
    pub(crate) fn mount(writeback: bool) -> Fuse {
        let dir = tempfile::tempdir().unwrap();
        let mut options = OpenOptions::new();
        let device = options.read(true).write(true).open("/dev/fuse").unwrap();
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0\0",
            device.as_raw_fd()
        );
        let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).unwrap();
        mount("test", dir.path(), "fuse", MountFlags::empty(), data).unwrap();
        let flags = BIG_WRITES | if writeback { WRITEBACK_CACHE } else { 0 };
        let server = std::thread::spawn(move || serve(device, flags));
        Fuse {
            dir,
            server: Some(server),
        }
    }

    /// Its file.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("file")
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// Answers requests until the file system is unmounted.
fn serve(mut device: File, flags: u32) {
    let mut content = Vec::new();
    let mut request = vec![0; 1 << 18];
    while let Ok(length) = device.read(&mut request) {
        let Some((error, body)) = answer(&request[..length], &mut content, flags) else {
            continue;
        };
        let mut reply = (16 + body.len() as u32).to_ne_bytes().to_vec();
        reply.extend(error.to_ne_bytes());
        reply.extend(&request[8..16]);
        reply.extend(body);
        if device.write_all(&reply).is_err() {
            return;
        }
    }
}

/// The error and the body of the reply to a request; some have none.
fn answer(request: &[u8], content: &mut Vec<u8>, flags: u32) -> Option<(i32, Vec<u8>)> {
    let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap());
    let node = long(16);
    let body = match word(4) {
        // FORGET, INTERRUPT, BATCH_FORGET
        2 | 36 | 42 => return None,
        // LOOKUP: node 2, valid for 60 s
        1 => [
            words(&[2, 0, 0, 0, 60, 0, 60, 0, 0, 0]),
            attributes(2, content.len()),
        ]
        .concat(),
        // GETATTR, SETATTR
        3 | 4 => [words(&[60, 0, 0, 0]), attributes(node, content.len())].concat(),
        // OPEN: the page cache stays
        14 => words(&[0, 0, 2, 0]),
        // READ
        15 => {
            let from = content.len().min(long(HEADER + 8) as usize);
            let to = content.len().min(from + word(HEADER + 16) as usize);
            content[from..to].to_vec()
        }
        // WRITE
        16 => {
            let (at, size) = (long(HEADER + 8) as usize, word(HEADER + 16) as usize);
            content.resize(content.len().max(at + size), 0);
            content[at..at + size].copy_from_slice(&request[HEADER + 40..][..size]);
            words(&[size as u32, 0])
        }
        // RELEASE, DESTROY
        18 | 38 => Vec::new(),
        // INIT: version 7.31, writes of 128 KiB
        26 => {
            let init = [7, 31, 1 << 17, flags, 0, 1 << 17, 1];
            [words(&init), vec![0; 64 - 4 * init.len()]].concat()
        }
        _ => return Some((ENOSYS, Vec::new())),
    };
    Some((0, body))
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct fuse_attr`: the root is node 1, the file node 2.
fn attributes(node: u64, bytes: usize) -> Vec<u8> {
    let (mode, size) = match node {
        1 => (libc::S_IFDIR | 0o755, 0),
        _ => (libc::S_IFREG | 0o644, bytes as u32),
    };
    let mut attributes = vec![0; 22];
    attributes[0] = node as u32;
    attributes[2] = size;
    attributes[15] = mode;
    attributes[16] = 1;
    words(&attributes)
}
