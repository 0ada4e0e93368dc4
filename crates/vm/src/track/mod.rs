//! Who asks for which page of an image: BPF programs count, user space reads memory.
//!
//! Each image has a map of its own, as large as the image ([`Book`]); the records are defined in
//! `bpf/record.h`, the programs in `bpf/images.bpf.c`. Programs are chosen by trying: behind
//! `filemap_read` requests are exact; where a kernel cannot attach there, the tracepoint
//! `mm_filemap_get_pages` tells them; where it has neither there is no tracking, and so no policy
//! but `default`.
//!
//! Invariants: links are dropped before the maps they use, and nothing is pinned, so nothing
//! outlives the [`Tracker`]; an image that is no longer registered costs nothing.

mod book;
mod load;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, MapType, Object};

use crate::Error;
pub use book::Book;

// The definitions of the records in `bpf/record.h`.
include!(concat!(env!("OUT_DIR"), "/images.rs"));

pub(crate) use generated::types;

const _: () = assert!(size_of::<types::block>() == 144);
const _: () = assert!(size_of::<types::image_key>() == 16);
const _: () = assert!(size_of::<types::image>() == 64);
const _: () = assert!(size_of::<types::machine>() == 24);

/// Flags of the images' maps (`include/uapi/linux/bpf.h`): `MMAPABLE`, `INNER_MAP`.
const BOOK_FLAGS: u32 = 1 << 10 | 1 << 12;

/// Images that can be counted: `MAX_IMAGES` of `bpf/images.bpf.c`.
const MAX_IMAGES: u32 = 1024;

/// What every tier runs.
const ALWAYS: [&str; 2] = ["page_added", "page_written"];

/// How the kernel knows a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    dev: u64,
    ino: u64,
}

impl Key {
    /// A regular file: the device of its file system, and its inode.
    pub fn file(major: u32, minor: u32, ino: u64) -> Key {
        Key {
            dev: kernel_device(major, minor),
            ino,
        }
    }

    /// A block device.
    pub fn block_device(major: u32, minor: u32) -> Key {
        Key {
            dev: u64::MAX,
            ino: kernel_device(major, minor),
        }
    }

    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.dev.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.ino.to_ne_bytes());
        bytes
    }
}

/// `MKDEV` of `include/linux/kdev_t.h`.
fn kernel_device(major: u32, minor: u32) -> u64 {
    u64::from(major) << 20 | u64::from(minor)
}

/// Where requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Behind `filemap_read`: each request, exactly.
    Function,
    /// At `mm_filemap_get_pages`, where there is no attaching behind functions. Not seen: a request
    /// within the one that the same thread made just before, with the same end; and of a request
    /// that has to wait for pages, sometimes the ones before these.
    Tracepoint,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Tier::Function => "filemap_read",
            Tier::Tracepoint => "mm_filemap_get_pages",
        })
    }
}

impl Tier {
    fn program(self) -> &'static str {
        match self {
            Tier::Function => "read_bytes",
            Tier::Tracepoint => "read_batch",
        }
    }
}

/// What was counted of an image. Pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageCounts {
    /// Asked for by machines.
    pub requested: u64,
    /// Of these, asked for before.
    pub again: u64,
    /// Brought into the page cache to be read.
    pub fetched: u64,
    /// Asked for by processes that are no machines.
    pub foreign: u64,
    /// Asked for or written, and not counted.
    pub lost: u64,
    /// When a machine last asked, nanoseconds of the monotonic clock; 0: never.
    pub used_ns: u64,
}

/// What a machine asked for. Pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineCounts {
    /// Asked for.
    pub requested: u64,
    /// Of these, asked for before, by it or by another machine.
    pub again: u64,
    /// When it last asked, nanoseconds of the monotonic clock; 0: never.
    pub used_ns: u64,
}

/// The programs, attached.
pub struct Tracker {
    /// Before the object: programs are detached first.
    links: Vec<Link>,
    object: Object,
    tier: Tier,
    places: Places,
}

/// Which of the programs' maps counts which image.
#[derive(Debug, Default)]
struct Places {
    of: BTreeMap<Key, u32>,
    /// Places go around: a program may still be counting for who had one before.
    next: u32,
}

impl Places {
    /// A place that nobody has. `None`: all are taken.
    fn free(&mut self) -> Option<u32> {
        let mut around = (0..MAX_IMAGES).map(|step| (self.next + step) % MAX_IMAGES);
        let place = around.find(|place| !self.of.values().any(|taken| taken == place))?;
        self.next = (place + 1) % MAX_IMAGES;
        Some(place)
    }
}

impl Tracker {
    /// Loads and attaches what this kernel takes.
    ///
    /// # Errors
    /// Environment: neither way to see requests works here; the remedy says what is missing.
    pub fn open() -> Result<Tracker, Error> {
        if !justitia_cgroup::has_btf(None) {
            return Err(refused("the kernel has no type information (BTF)"));
        }
        Tracker::attach(Tier::Function).or_else(|first| {
            Tracker::attach(Tier::Tracepoint).map_err(|second| {
                // Both: which of them should have worked here is the kernel's to know.
                refused(&if first == second {
                    first
                } else {
                    format!("{first}; {second}")
                })
            })
        })
    }

    /// Loads and attaches a certain tier.
    ///
    /// # Errors
    /// Environment: this kernel does not take it.
    pub fn with(tier: Tier) -> Result<Tracker, Error> {
        Tracker::attach(tier).map_err(|reason| refused(&reason))
    }

    fn attach(tier: Tier) -> Result<Tracker, String> {
        let runs = |program: &str| ALWAYS.contains(&program) || program == tier.program();
        let object = load::load(&runs)?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if runs(&name) {
                let link = program.attach();
                links.push(link.map_err(|error| format!("{name}: {error}"))?);
            }
        }
        Ok(Tracker {
            links,
            object,
            tier,
            places: Places::default(),
        })
    }

    /// Where requests are counted.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Programs that are attached.
    pub fn attached(&self) -> usize {
        self.links.len()
    }

    /// Counts an image of so many pages from now on; with a book of before, its counts go on.
    ///
    /// # Errors
    /// Too many images, or no memory.
    pub fn register(&mut self, key: Key, pages: u64, before: Option<&Book>) -> Result<Book, Error> {
        let said = |error: &dyn fmt::Display| {
            Error::failed(
                format!("cannot count the pages of an image: {error}"),
                format!("free memory, or use fewer images: at most {MAX_IMAGES} can be counted"),
            )
        };
        let (blocks, entries) = Book::size(pages).ok_or_else(|| said(&"it is too large"))?;
        let place = self.places.free().ok_or_else(|| said(&"too many"))?;
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: BOOK_FLAGS,
            ..libbpf_sys::bpf_map_create_opts::default()
        };
        let value = size_of::<types::block>() as u32;
        let map = MapHandle::create(MapType::Array, Some("blocks"), 4, value, entries, &opts)
            .map_err(|error| said(&error))?;
        let book = Book::map(map.as_fd(), blocks, entries).map_err(|error| said(&error))?;
        if let Some(before) = before {
            book.copy(before);
        }
        let record = types::image {
            book: place,
            blocks,
            ..self.counts(key).unwrap_or_default()
        };
        let fd = map.as_fd().as_raw_fd().to_ne_bytes();
        // The pages first: a program that finds the image finds them too.
        self.map("books")
            .update(&place.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(|error| said(&error))?;
        let images = self.map("images");
        if let Err(error) = images.update(&key.bytes(), &image_bytes(&record), MapFlags::ANY) {
            self.vacate(place);
            return Err(said(&error));
        }
        if let Some(smaller) = self.places.of.insert(key, place) {
            self.vacate(smaller);
        }
        Ok(book)
    }

    /// Counts it no longer.
    pub fn forget(&mut self, key: Key) {
        // It may never have got in.
        if let Some(place) = self.places.of.remove(&key) {
            let _ = self.map("images").delete(&key.bytes());
            self.vacate(place);
        }
    }

    /// Lets the map in this place go.
    fn vacate(&self, place: u32) {
        let _ = self.map("books").delete(&place.to_ne_bytes());
    }

    /// Takes requests of this process for a machine's.
    ///
    /// # Errors
    /// Too many machines.
    pub fn add_machine(&self, pid: u32) -> Result<(), Error> {
        let none = [0; size_of::<types::machine>()];
        self.map("machines")
            .update(&pid.to_ne_bytes(), &none, MapFlags::ANY)
            .map_err(|error| {
                let cause = format!("cannot count the requests of process {pid}: {error}");
                Error::failed(cause, "at most 1024 machines can be counted")
            })
    }

    /// No longer.
    pub fn remove_machine(&self, pid: u32) {
        let _ = self.map("machines").delete(&pid.to_ne_bytes());
    }

    /// What was counted of an image since it was registered.
    pub fn image(&self, key: Key) -> Option<ImageCounts> {
        let record = self.counts(key)?;
        Some(ImageCounts {
            requested: record.requested_pages,
            again: record.again_pages,
            fetched: record.inserted_pages.saturating_sub(record.written_pages),
            foreign: record.foreign_pages,
            lost: record.lost_pages,
            used_ns: record.used_ns,
        })
    }

    /// What a machine asked for since it was added.
    pub fn machine(&self, pid: u32) -> Option<MachineCounts> {
        let found = self
            .map("machines")
            .lookup(&pid.to_ne_bytes(), MapFlags::ANY);
        let [requested, again, used_ns] = words(&found.ok()??)?;
        Some(MachineCounts {
            requested,
            again,
            used_ns,
        })
    }

    fn counts(&self, key: Key) -> Option<types::image> {
        let found = self.map("images").lookup(&key.bytes(), MapFlags::ANY);
        let words: [u64; 8] = words(&found.ok()??)?;
        // SAFETY: the record is made of u64 alone, and of as many (asserted above).
        Some(unsafe { std::mem::transmute::<[u64; 8], types::image>(words) })
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        let mut maps = self.object.maps();
        let found = maps.find(|map| map.name() == name);
        found.unwrap_or_else(|| unreachable!("bpf/images.bpf.c has no map {name}"))
    }
}

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracker")
            .field("tier", &self.tier)
            .finish_non_exhaustive()
    }
}

fn refused(reason: &str) -> Error {
    Error::environment(
        format!("requests for pages cannot be counted here: {reason}"),
        "run as root (CAP_BPF, CAP_PERFMON) on a kernel with BTF, Linux 6.1 or later; without it \
         justitia vm still shows what is cached",
    )
}

fn image_bytes(record: &types::image) -> [u8; size_of::<types::image>()] {
    // SAFETY: plain old data of u64 alone, without padding.
    unsafe { std::mem::transmute_copy(record) }
}

fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let mut words = [0; N];
    if bytes.len() != N * 8 {
        return None;
    }
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

/// The kernel's monotonic clock, on which the programs note times: nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// What went wrong with a map's memory.
pub(crate) type MapResult<T> = io::Result<T>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_nobody_elses_and_not_given_again_at_once() {
        let mut places = Places::default();
        let key = |ino: u32| Key::file(8, 0, u64::from(ino));
        for ino in 0..MAX_IMAGES {
            let place = places.free().unwrap();
            assert!(!places.of.values().any(|&taken| taken == place));
            places.of.insert(key(ino), place);
        }
        assert_eq!(places.free(), None);
        let [first, second] = [5, 3].map(|ino| places.of.remove(&key(ino)).unwrap());
        let given = [places.free(), places.free()];
        assert_eq!(given, [Some(second), Some(first)], "in turn");
        assert_eq!(places.free(), Some(second), "when there is no other");
    }
}
