//! Counts the requests of each page of an image: BPF programs count, and user space reads the mapped
//! counters.
//!
//! Each image has its own map, sized for its pages ([`Book`]). The records are defined in `bpf/record.h`, the
//! programs in `bpf/images.bpf.c`. The programs are chosen by trying to attach them: behind `filemap_read`
//! requests are counted exactly; a kernel that cannot attach there counts at the tracepoint
//! `mm_filemap_get_pages`. With neither there is no tracking, and no policy but `default`.
//!
//! Invariants: links are dropped before the maps they use. Nothing is pinned, so nothing outlives the
//! [`Tracker`]. An image that is no longer registered costs nothing.

mod book;

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, MapType, Object};

use crate::Error;
pub use book::Book;

// The Rust types of the records in `bpf/record.h`.
include!(concat!(env!("OUT_DIR"), "/images.rs"));

pub use generated::types;

const _: () = assert!(size_of::<types::block>() == 144);
const _: () = assert!(size_of::<types::image_key>() == 16);
const _: () = assert!(size_of::<types::image>() == 64);
const _: () = assert!(size_of::<types::machine>() == 24);

/// Flags of the images' maps: `BPF_F_MMAPABLE` and `BPF_F_INNER_MAP` (`include/uapi/linux/bpf.h`).
const BOOK_FLAGS: u32 = 1 << 10 | 1 << 12;

/// `MAX_IMAGES` of `bpf/images.bpf.c`.
const MAX_IMAGES: u32 = 1024;

/// Programs that every tier attaches.
const ALWAYS: [&str; 2] = ["page_added", "page_written"];

/// The kernel's identity of a file: `struct image_key` of `bpf/record.h`.
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

/// The hook at which requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// By fexit of `filemap_read`: every request, exactly.
    Function,
    /// At the tracepoint `mm_filemap_get_pages`, on kernels that cannot attach behind functions. It misses a
    /// request that lies within the same thread's previous one and has the same end. When a request waits for
    /// a page, it sometimes misses the pages before that one.
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

/// A record of `bpf/record.h`.
///
/// # Safety
/// It consists of integers, without padding.
unsafe trait Plain: Copy {}
// SAFETY: two integers of 4 bytes and seven of 8 bytes are 64 bytes, its size (asserted above).
unsafe impl Plain for types::image {}
// SAFETY: three integers of 8 bytes are 24 bytes, its size (asserted above).
unsafe impl Plain for types::machine {}

impl types::image {
    /// Pages brought into the page cache by reads and readahead, not by writes.
    pub fn fetched_pages(&self) -> u64 {
        self.inserted_pages.saturating_sub(self.written_pages)
    }
}

/// The attached programs and their maps.
pub struct Tracker {
    /// Declared before `object`, so that the programs are detached before their maps go.
    _links: Vec<Link>,
    object: Object,
    tier: Tier,
    places: Places,
}

/// The slots of the map `books`, one for each image.
#[derive(Debug, Default)]
struct Places {
    of: BTreeMap<Key, u32>,
    /// Slots are assigned round-robin: a program may still count for the previous owner of a freed slot.
    next: u32,
}

impl Places {
    /// A free slot. `None`: all are taken.
    fn free(&mut self) -> Option<u32> {
        let mut around = (0..MAX_IMAGES).map(|step| (self.next + step) % MAX_IMAGES);
        let place = around.find(|place| !self.of.values().any(|taken| taken == place))?;
        self.next = (place + 1) % MAX_IMAGES;
        Some(place)
    }
}

impl Tracker {
    /// Loads and attaches the programs of the best tier that this kernel accepts.
    ///
    /// # Errors
    /// Environment: no tier works here; the error names the reason and a remedy.
    pub fn open() -> Result<Tracker, Error> {
        if !justitia_cgroup::has_btf(None) {
            return Err(refused("the kernel has no type information (BTF)"));
        }
        // The programs see the numbers that processes have in the initial namespace.
        if !justitia_cgroup::sees_all_processes() {
            return Err(refused("this program is in a pid namespace of its own"));
        }
        Tracker::attach(Tier::Function).or_else(|first| {
            Tracker::attach(Tier::Tracepoint).map_err(|second| {
                if first == second {
                    return refused(&first);
                }
                // Report both reasons: which tier should have worked here is not known.
                refused(&format!("{first}; {second}"))
            })
        })
    }

    /// Loads and attaches the programs of this tier.
    ///
    /// # Errors
    /// Environment: this kernel does not accept it.
    pub fn with(tier: Tier) -> Result<Tracker, Error> {
        Tracker::attach(tier).map_err(|reason| refused(&reason))
    }

    fn attach(tier: Tier) -> Result<Tracker, String> {
        let runs = |program: &str| ALWAYS.contains(&program) || program == tier.program();
        let page_shift = rustix::param::page_size().trailing_zeros().to_ne_bytes();
        let object = justitia_bpf::object!("images");
        let object = justitia_bpf::load("justitia_vm", object, &runs, &page_shift)
            .map_err(|error| justitia_bpf::reason().unwrap_or_else(|| error.to_string()))?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if runs(&name) {
                let link = program.attach();
                links.push(link.map_err(|error| format!("{name}: {error}"))?);
            }
        }
        Ok(Tracker {
            _links: links,
            object,
            tier,
            places: Places::default(),
        })
    }

    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Starts counting an image of `pages` pages. With `before`, the image's previous book, the new book
    /// continues its counts.
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
            ..self.image(key).unwrap_or_default()
        };
        // SAFETY: plain integers without padding.
        let record: [u8; size_of::<types::image>()] = unsafe { std::mem::transmute(record) };
        let fd = map.as_fd().as_raw_fd().to_ne_bytes();
        // First the book, then the image: a program that finds the image must find its book.
        self.map("books")
            .update(&place.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(|error| said(&error))?;
        let images = self.map("images");
        if let Err(error) = images.update(&key.bytes(), &record, MapFlags::ANY) {
            self.vacate(place);
            return Err(said(&error));
        }
        if let Some(smaller) = self.places.of.insert(key, place) {
            self.vacate(smaller);
        }
        Ok(book)
    }

    /// Stops counting an image.
    pub fn forget(&mut self, key: Key) {
        // It may never have been registered.
        if let Some(place) = self.places.of.remove(&key) {
            let _ = self.map("images").delete(&key.bytes());
            self.vacate(place);
        }
    }

    /// Removes the map in this slot.
    fn vacate(&self, place: u32) {
        let _ = self.map("books").delete(&place.to_ne_bytes());
    }

    /// Counts requests of this process as a machine's.
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

    pub fn remove_machine(&self, pid: u32) {
        let _ = self.map("machines").delete(&pid.to_ne_bytes());
    }

    /// Counters of an image since it was registered. `None`: not registered.
    pub fn image(&self, key: Key) -> Option<types::image> {
        self.record("images", &key.bytes())
    }

    /// Counters of a machine since it was added. `None`: not added.
    pub fn machine(&self, pid: u32) -> Option<types::machine> {
        self.record("machines", &pid.to_ne_bytes())
    }

    fn record<T: Plain>(&self, map: &str, key: &[u8]) -> Option<T> {
        let bytes = self.map(map).lookup(key, MapFlags::ANY).ok()??;
        // SAFETY: there are as many bytes as the record has, and any bits are a value of it.
        let read = || unsafe { bytes.as_ptr().cast::<T>().read_unaligned() };
        (bytes.len() == size_of::<T>()).then(read)
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
        "run as root (CAP_BPF, CAP_PERFMON) in the host's pid namespace, on a kernel with BTF, Linux 6.1 or later; \
         without it justitia vm still shows what is cached",
    )
}

/// Nanoseconds of the monotonic clock, as the programs record them.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

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
