//! The prior values of knobs, on disk before the first write of each knob.
//!
//! One text file in the state directory, one record a line, each with a checksum in front:
//!
//! ```text
//! CHECKSUM justitia-journal 1 BOOT-ID
//! CHECKSUM hold GROUP-ID KNOB PRIOR PATH     before our first write of a knob, and again when its prior value
//!                                             becomes another one
//! CHECKSUM wrote GROUP-ID KNOB VALUE         before each write
//! CHECKSUM forget GROUP-ID KNOB              restored, vanished, or the user's now
//! ```
//!
//! Invariants:
//! - A record is in the file before the write it announces is submitted. After `kill -9` at any
//!   instant the file therefore names every knob that we may have changed.
//! - A torn last line announces a write that was never submitted: it is dropped. Any other damaged line, also
//!   the first one, is dropped and counted, and the file is kept aside.
//! - Reading writes nothing: the file is begun with the first hold, so a full or read-only disk does not
//!   prevent restoring.
//! - After a failure, or when the file has vanished, nothing is appended to a file that may be torn: the next
//!   record rewrites the whole file. Until that succeeds, nothing new is held.
//! - Identity is the cgroup id: a new group under an old name has another one.
//! - Cgroups do not survive a reboot, so a journal of another boot is discarded.
//!
//! Left out: surviving a power failure beyond `fsync` of new holds (after it there is nothing to
//! restore), and locking (see [`crate::lock`]).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use justitia_discover::Priors;
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::GroupId;

use crate::error::{Error, Result};
use crate::lock::make_state_dir;
use crate::record::{checked, same};
use crate::status::Problem;

#[doc(hidden)]
pub use crate::record::push_line;

const FILE: &str = "journal";
const VERSION: &str = "1";
/// Number of our values that are remembered for each knob: the last one may not have arrived, and while the
/// kernel was slow neither may the ones before it.
const REMEMBERED: usize = 4;
/// Lines that a journal may have beyond its entries before it is rewritten.
const SLACK_LINES: usize = 20_000;

/// A knob of a group or disk.
pub(crate) type Key = (GroupId, Knob);

/// One knob that we may have changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The group's path relative to the cgroup2 mount, or the disk's.
    pub path: Arc<str>,
    /// The knob's value before our first write.
    pub prior: Value,
    /// Our last values, newest at the end; empty before the first write.
    pub written: Vec<Value>,
}

impl Entry {
    /// The entry of a knob that was not written yet.
    pub fn new(path: impl Into<Arc<str>>, prior: Value) -> Entry {
        Entry {
            path: path.into(),
            prior,
            written: Vec::new(),
        }
    }

    /// True if this value may be one of ours.
    pub fn is_ours(&self, present: Value) -> bool {
        self.written.iter().any(|&value| same(value, present))
    }
}

/// The journal: its file and its entries.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    boot: String,
    /// `None`: nothing was appended yet, or the file on disk must not be appended to.
    file: Option<File>,
    entries: BTreeMap<Key, Entry>,
    lines: usize,
    damaged: Option<Damage>,
}

/// Damage found when a journal was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Damaged lines, without a torn last one.
    pub lines: usize,
    /// Path under which the damaged file is kept; `None`: it could not be kept.
    pub kept: Option<PathBuf>,
}

impl Damage {
    /// As a problem, for people.
    pub fn problem(&self) -> Problem {
        Problem {
            group: None,
            cause: format!(
                "{} lines of the journal are damaged; the knobs that only these lines name are not restored",
                self.lines
            ),
            remedy: match &self.kept {
                Some(path) => format!("compare the knobs with {}", path.display()),
                None => "check the groups' knobs by hand; the damaged file could not be kept".into(),
            },
        }
    }
}

impl Journal {
    /// Reads the journal in `dir`. A journal of another boot is discarded. Writes nothing, except that a
    /// damaged file gets a second name.
    pub fn open(dir: &Path, boot: &str) -> Result<Journal> {
        let path = dir.join(FILE);
        let read = read(&path, boot)?;
        let damaged = (read.damaged > 0).then(|| Damage {
            lines: read.damaged,
            kept: keep_aside(&path),
        });
        Ok(Journal {
            path,
            boot: boot.to_owned(),
            file: None,
            entries: read.entries,
            lines: 0,
            damaged,
        })
    }

    /// The prior values in the journal in `dir`, of the running agent or of an earlier one of this boot. Only
    /// reads. Empty without a journal.
    pub fn priors(dir: &Path, boot: &str) -> Result<Priors> {
        let entries = read(&dir.join(FILE), boot)?.entries.into_iter();
        Ok(entries.map(|(knob, entry)| (knob, entry.prior)).collect())
    }

    /// True if there is a journal in this directory.
    pub fn exists(dir: &Path) -> Result<bool> {
        file_exists(&dir.join(FILE))
    }

    /// Everything held, ordered by group and knob.
    pub fn entries(&self) -> &BTreeMap<Key, Entry> {
        &self.entries
    }

    pub fn get(&self, group: GroupId, knob: Knob) -> Option<&Entry> {
        self.entries.get(&(group, knob))
    }

    /// True if this value of a knob may be one of ours.
    pub(crate) fn is_ours(&self, (group, knob): Key, present: Value) -> bool {
        let entry = self.get(group, knob);
        entry.is_some_and(|entry| entry.is_ours(present))
    }

    /// Damage found when the journal was opened.
    pub fn damaged(&self) -> Option<&Damage> {
        self.damaged.as_ref()
    }

    /// Records prior values, and returns when they are on disk. After an error nothing is held.
    pub fn hold(&mut self, batch: &[((GroupId, Knob), Entry)]) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut text = String::with_capacity(batch.len() * 96);
        for (key, entry) in batch {
            push_entry(&mut text, *key, entry.prior, entry);
        }
        self.append(&text, batch.len(), true)?;
        self.entries.extend(batch.iter().cloned());
        Ok(())
    }

    /// Records another writer's values as the prior values of knobs that stay held, and returns when they are
    /// on disk. Values of ours stay remembered, because they may still arrive.
    pub fn rebase(&mut self, batch: &[(GroupId, Knob, Value)]) -> Result<()> {
        let (mut text, mut lines) = (String::new(), 0);
        for &(group, knob, prior) in batch {
            if let Some(entry) = self.entries.get(&(group, knob)) {
                lines += push_entry(&mut text, (group, knob), prior, entry);
            }
        }
        if lines > 0 {
            self.append(&text, lines, true)?;
        }
        for &(group, knob, prior) in batch {
            if let Some(entry) = self.entries.get_mut(&(group, knob)) {
                entry.prior = prior;
            }
        }
        Ok(())
    }

    /// Records values about to be written to knobs that are held.
    pub fn wrote(&mut self, batch: &[(GroupId, Knob, Value)]) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        if self.lines > SLACK_LINES + self.entries.len() * (1 + REMEMBERED) {
            // If it cannot be rewritten, it keeps growing.
            let _ = self.rewrite();
        }
        let mut text = String::with_capacity(batch.len() * 64);
        for &(group, knob, value) in batch {
            push_line(&mut text, &format!("wrote {group} {knob} {value}"));
        }
        self.append(&text, batch.len(), false)?;
        for &(group, knob, value) in batch {
            if let Some(entry) = self.entries.get_mut(&(group, knob)) {
                remember(entry, value);
            }
        }
        Ok(())
    }

    /// Forgets knobs that were restored, whose group vanished, or that are the user's now. They are forgotten
    /// here even if the disk refuses the record: a restore after a crash would find no value of ours in them
    /// and nothing to do.
    pub fn forget(&mut self, batch: &[Key]) -> Result<()> {
        let mut text = String::new();
        let mut count = 0;
        for &(group, knob) in batch {
            if self.entries.remove(&(group, knob)).is_some() {
                push_line(&mut text, &format!("forget {group} {knob}"));
                count += 1;
            }
        }
        if count == 0 {
            return Ok(());
        }
        // A new file does not name them and needs no record of it.
        if !self.is_there() {
            return self.rewrite();
        }
        self.append(&text, count, false)
    }

    /// Removes the file if nothing is held any more.
    pub fn close(self) -> Result<()> {
        if !self.entries.is_empty() {
            return Ok(());
        }
        remove(&self.path)
    }

    /// Appends whole lines in one write. With `sync`, returns when they are on disk.
    fn append(&mut self, text: &str, lines: usize, sync: bool) -> Result<()> {
        if !self.is_there() {
            self.rewrite()?;
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut written = write_all(file, text);
        if sync {
            written = written
                .and_then(|()| called(Call::Sync))
                .and_then(|()| file.sync_data());
        }
        if let Err(error) = written {
            self.file = None;
            return Err(Error::io("write", &self.path, &error));
        }
        self.lines += lines;
        Ok(())
    }

    /// True if the open file is the one that a restore would find.
    fn is_there(&self) -> bool {
        let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let open = self.file.as_ref().and_then(|file| file.metadata().ok());
        open.is_some() && open.map(identity) == fs::metadata(&self.path).ok().map(identity)
    }

    fn rewrite(&mut self) -> Result<()> {
        let text = text_of(&self.boot, &self.entries);
        self.file = Some(replace(&self.path, &text, true)?);
        self.lines = self.entries.len() * 2;
        Ok(())
    }
}

fn remember(entry: &mut Entry, value: Value) {
    entry.written.retain(|&known| known != value);
    if entry.written.len() == REMEMBERED {
        entry.written.remove(0);
    }
    entry.written.push(value);
}

/// Number of damaged files that are kept.
const KEPT: u32 = 3;

/// Gives a damaged journal a second name, which needs no space on the disk. Later records go to a new file.
/// When all [`KEPT`] names are taken, the last one is replaced.
fn keep_aside(path: &Path) -> Option<PathBuf> {
    let name_of = |n| path.with_extension(format!("damaged-{n}"));
    let n = (1..KEPT).find(|&n| !name_of(n).exists()).unwrap_or(KEPT);
    let name = name_of(n);
    if n == KEPT {
        let _ = fs::remove_file(&name);
    }
    fs::hard_link(path, &name).ok().map(|()| name)
}

/// The system calls that a test can make fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Create,
    Truncate,
    Write,
    Sync,
    Rename,
    SyncDirectory,
}

/// Fails if the test injects a fault into this call.
#[cfg(not(test))]
#[inline]
#[allow(clippy::unnecessary_wraps, reason = "in tests it fails")]
fn called(_: Call) -> io::Result<()> {
    Ok(())
}
#[cfg(test)]
use tests::called;
#[cfg(test)]
pub(crate) use tests::{Fault, FAULT};

/// Writes a text in one go.
fn write_all(file: &mut File, text: &str) -> io::Result<()> {
    if let Err(error) = called(Call::Write) {
        // A short write, as on a disk that fills up.
        file.write_all(&text.as_bytes()[..text.len() / 2])?;
        return Err(error);
    }
    file.write_all(text.as_bytes())
}

/// Replaces a file of the state directory atomically. With `sync`, returns when it is on disk.
pub(crate) fn replace(path: &Path, text: &str, sync: bool) -> Result<File> {
    let fresh = path.with_extension("new");
    let write = || -> io::Result<File> {
        if let Some(dir) = path.parent() {
            make_state_dir(dir)?;
        }
        called(Call::Create)?;
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&fresh)?;
        called(Call::Truncate)?;
        file.set_len(0)?;
        write_all(&mut file, text)?;
        if sync {
            called(Call::Sync)?;
            file.sync_data()?;
        }
        called(Call::Rename)?;
        fs::rename(&fresh, path)?;
        if let Some(dir) = path.parent().filter(|_| sync) {
            called(Call::SyncDirectory)?;
            File::open(dir)?.sync_all()?;
        }
        Ok(file)
    };
    write().map_err(|error| Error::io("write", path, &error))
}

/// True if a file of the state directory exists.
pub(crate) fn file_exists(path: &Path) -> Result<bool> {
    path.try_exists()
        .map_err(|error| Error::io("read", path, &error))
}

/// Removes a file of the state directory if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, &error))
        }
        _ => Ok(()),
    }
}

/// The text of a journal that has just `entries`.
fn text_of(boot: &str, entries: &BTreeMap<Key, Entry>) -> String {
    let mut text = String::new();
    push_line(&mut text, &format!("justitia-journal {VERSION} {boot}"));
    for (&key, entry) in entries {
        push_entry(&mut text, key, entry.prior, entry);
    }
    text
}

/// Appends the records of one knob with this prior value and returns their number.
fn push_entry(text: &mut String, (group, knob): Key, prior: Value, entry: &Entry) -> usize {
    // The path comes last, because it may contain blanks. The kernel allows no line break in it.
    push_line(text, &format!("hold {group} {knob} {prior} {}", entry.path));
    for value in &entry.written {
        push_line(text, &format!("wrote {group} {knob} {value}"));
    }
    1 + entry.written.len()
}

/// Replays a journal and rewrites it. Returns the new text and the number of damaged lines in the old one.
/// For the fuzz target, which needs no files.
#[doc(hidden)]
pub fn rewritten(text: &[u8], boot: &str) -> Result<(String, usize)> {
    let replay = replay(text, boot, Path::new(FILE))?;
    Ok((text_of(boot, &replay.entries), replay.damaged))
}

#[derive(Debug, Default)]
struct Replay {
    entries: BTreeMap<Key, Entry>,
    damaged: usize,
}

/// Reads a journal. A missing file is an empty one.
fn read(path: &Path, boot: &str) -> Result<Replay> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Error::io("read", path, &error)),
    };
    replay(&text, boot, path)
}

fn replay(text: &[u8], boot: &str, path: &Path) -> Result<Replay> {
    let text = String::from_utf8_lossy(text);
    let mut replay = Replay::default();
    let mut lines = text.split_inclusive('\n').peekable();
    let first = lines.peek().copied().unwrap_or_default();
    let header: Vec<_> = checked(first).unwrap_or_default().split(' ').collect();
    match header[..] {
        ["justitia-journal", VERSION, of] if of == boot => drop(lines.next()),
        ["justitia-journal", VERSION, _] => return Ok(replay),
        ["justitia-journal", ..] => {
            return Err(Error::failed(
                format!("{} has a format this version does not know", path.display()),
                "run `justitia restore` of the version that wrote it, or remove the file",
            ))
        }
        // Empty, or torn in its first line: nothing was announced yet.
        _ if lines.clone().nth(1).is_none() && checked(first).is_none() => return Ok(replay),
        // The header is damaged or lost. Every line has a checksum of its own.
        _ => replay.damaged += usize::from(checked(first).is_some()),
    }
    while let Some(line) = lines.next() {
        let known = checked(line).is_some_and(|record| replay.record(record).is_some());
        let torn_end = lines.peek().is_none() && !line.ends_with('\n');
        if !known && !torn_end {
            replay.damaged += 1;
        }
    }
    Ok(replay)
}

impl Replay {
    fn record(&mut self, record: &str) -> Option<()> {
        let mut words = record.splitn(5, ' ');
        let verb = words.next()?;
        let group = GroupId(words.next()?.parse().ok()?);
        let knob = Knob::from_file_name(words.next()?).filter(|knob| knob.holds_value())?;
        match verb {
            "hold" => {
                let prior = knob.value(words.next()?)?;
                let entry = Entry::new(words.next()?, prior);
                self.entries.insert((group, knob), entry);
            }
            "wrote" => {
                let value = knob.value(words.next()?)?;
                remember(self.entries.get_mut(&(group, knob))?, value);
            }
            "forget" => {
                self.entries.remove(&(group, knob))?;
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
