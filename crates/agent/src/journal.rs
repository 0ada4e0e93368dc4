//! What the knobs held before us: on disk before the first write of each knob.
//!
//! One text file in the state directory, one record a line, each with a checksum in front:
//!
//! ```text
//! CHECKSUM justitia-journal 1 BOOT-ID
//! CHECKSUM hold GROUP-ID KNOB PRIOR PATH     before our first write of a knob
//! CHECKSUM wrote GROUP-ID KNOB VALUE         before each write
//! CHECKSUM forget GROUP-ID KNOB              restored, vanished, or the user's now
//! ```
//!
//! Invariants:
//! - A record is in the file before the write it announces is submitted. After `kill -9` at any
//!   instant the file therefore names every knob that we may have changed.
//! - A torn last line announces a write that was never submitted: it is dropped. A damaged line
//!   in the middle is dropped too, and counted.
//! - Identity is the cgroup id: a new group under an old name has another one.
//! - Cgroups do not survive a reboot, nor does their journal: one of another boot is discarded.
//!
//! Left out: surviving a power failure beyond `fsync` of new holds (after it there is nothing to
//! restore), and locking (see [`crate::lock`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use justitia_discover::Priors;
use justitia_policy::plan::{Knob, Value};
use justitia_policy::snapshot::GroupId;

use crate::error::{Error, Result};
use crate::record::{checked, hold_line, knob, push_line, same, value};

const FILE: &str = "journal";
const VERSION: &str = "1";
/// Values of ours that are remembered for each knob: the last one may not have got through, and
/// while the kernel was slow neither may the ones before it.
const REMEMBERED: usize = 4;
/// Lines a journal may grow to, beyond what it holds, before it is written anew.
const SLACK_LINES: usize = 20_000;

/// One knob that we may have changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The group's path relative to the cgroup2 mount, or the disk's.
    pub path: Arc<str>,
    /// What the knob held before our first write.
    pub prior: Value,
    /// What we wrote last, newest at the end; empty before the first write.
    pub written: Vec<Value>,
}

impl Entry {
    /// Whether this value may be one of ours.
    pub fn is_ours(&self, present: Value) -> bool {
        self.written.iter().any(|&value| same(value, present))
    }
}

/// A knob about to be written for the first time.
#[derive(Debug, Clone)]
pub struct Hold {
    /// The group.
    pub group: GroupId,
    /// Its path relative to the cgroup2 mount.
    pub path: Arc<str>,
    /// Its file.
    pub knob: Knob,
    /// What the file holds now.
    pub prior: Value,
}

/// The journal: its file and what that says.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    boot: String,
    file: File,
    entries: BTreeMap<(GroupId, Knob), Entry>,
    lines: usize,
    length: u64,
    damaged: usize,
}

impl Journal {
    /// Reads the journal in `dir`, or begins one. One of another boot is discarded.
    pub fn open(dir: &Path, boot: &str) -> Result<Journal> {
        let path = dir.join(FILE);
        let read = read(&path, boot)?;
        let file = begin(&path, boot, &read.entries)?;
        let lines = read.entries.len() * 2;
        let length = length_of(&file, &path)?;
        let damaged = read.damaged;
        let boot = boot.to_owned();
        Ok(Journal {
            path,
            boot,
            file,
            entries: read.entries,
            lines,
            length,
            damaged,
        })
    }

    /// What the knobs in the journal in `dir` held before the agent that keeps it, or did so in this
    /// boot, wrote to them. Only reads; nothing without a journal.
    pub fn priors(dir: &Path, boot: &str) -> Result<Priors> {
        let entries = read(&dir.join(FILE), boot)?.entries.into_iter();
        Ok(entries.map(|(knob, entry)| (knob, entry.prior)).collect())
    }

    /// Whether there is a journal in this directory.
    pub fn exists(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// Everything held, ordered by group and knob.
    pub fn entries(&self) -> &BTreeMap<(GroupId, Knob), Entry> {
        &self.entries
    }

    /// The entry of one knob.
    pub fn get(&self, group: GroupId, knob: Knob) -> Option<&Entry> {
        self.entries.get(&(group, knob))
    }

    /// Lines that could not be read when the journal was opened, a torn last one aside.
    pub fn damaged(&self) -> usize {
        self.damaged
    }

    /// Records prior values, and returns when they are on disk.
    pub fn hold(&mut self, batch: &[Hold]) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut text = String::with_capacity(batch.len() * 96);
        for hold in batch {
            push_line(
                &mut text,
                &hold_line(hold.group, hold.knob, hold.prior, &hold.path),
            );
        }
        self.append(&text, batch.len())?;
        self.file
            .sync_data()
            .map_err(|error| Error::io("sync", &self.path, &error))?;
        for hold in batch {
            let Hold {
                group,
                ref path,
                knob,
                prior,
            } = *hold;
            let entry = Entry {
                path: path.clone(),
                prior,
                written: Vec::new(),
            };
            self.entries.insert((group, knob), entry);
        }
        Ok(())
    }

    /// Records values about to be written to knobs that are held.
    pub fn wrote(&mut self, batch: &[(GroupId, Knob, Value)]) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        if self.lines > SLACK_LINES + self.entries.len() * (1 + REMEMBERED) {
            self.rewrite()?;
        }
        let mut text = String::with_capacity(batch.len() * 64);
        let mut line = String::with_capacity(64);
        for &(group, knob, value) in batch {
            line.clear();
            let _ = write!(line, "wrote {group} {knob} {value}");
            push_line(&mut text, &line);
        }
        self.append(&text, batch.len())?;
        for &(group, knob, value) in batch {
            if let Some(entry) = self.entries.get_mut(&(group, knob)) {
                remember(entry, value);
            }
        }
        Ok(())
    }

    /// Forgets knobs: they were restored, their group vanished, or they are the user's now.
    pub fn forget(&mut self, batch: &[(GroupId, Knob)]) -> Result<()> {
        let mut text = String::new();
        let mut count = 0;
        for &(group, knob) in batch {
            if self.entries.remove(&(group, knob)).is_some() {
                push_line(&mut text, &format!("forget {group} {knob}"));
                count += 1;
            }
        }
        self.append(&text, count)
    }

    /// Removes the file if nothing is held any more: nothing is left behind.
    pub fn close(self) -> Result<()> {
        if !self.entries.is_empty() {
            return Ok(());
        }
        fs::remove_file(&self.path).map_err(|error| Error::io("remove", &self.path, &error))
    }

    /// Adds whole lines in one write. A write that fails half way is cut off again, so that the
    /// next record does not end up behind a torn one.
    fn append(&mut self, text: &str, lines: usize) -> Result<()> {
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            let _ = self.file.set_len(self.length);
            return Err(Error::io("write", &self.path, &error));
        }
        self.length += text.len() as u64;
        self.lines += lines;
        Ok(())
    }

    fn rewrite(&mut self) -> Result<()> {
        self.file = begin(&self.path, &self.boot, &self.entries)?;
        self.length = length_of(&self.file, &self.path)?;
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

/// Writes a journal that says just `entries`, and swaps it in at once.
fn begin(path: &Path, boot: &str, entries: &BTreeMap<(GroupId, Knob), Entry>) -> Result<File> {
    let fresh = path.with_extension("new");
    let write = || -> io::Result<File> {
        let mut file = OpenOptions::new()
            // Not at an offset, which stays behind the end when a torn record is cut off.
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&fresh)?;
        file.set_len(0)?;
        let mut text = String::new();
        push_line(&mut text, &format!("justitia-journal {VERSION} {boot}"));
        for (&(group, knob), entry) in entries {
            push_line(&mut text, &hold_line(group, knob, entry.prior, &entry.path));
            for value in &entry.written {
                push_line(&mut text, &format!("wrote {group} {knob} {value}"));
            }
        }
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        fs::rename(&fresh, path)?;
        if let Some(dir) = path.parent() {
            File::open(dir)?.sync_all()?;
        }
        Ok(file)
    };
    write().map_err(|error| Error::io("write", path, &error))
}

fn length_of(file: &File, path: &Path) -> Result<u64> {
    let metadata = file
        .metadata()
        .map_err(|error| Error::io("read", path, &error))?;
    Ok(metadata.len())
}

#[derive(Debug, Default)]
struct Replay {
    entries: BTreeMap<(GroupId, Knob), Entry>,
    damaged: usize,
}

/// What a journal holds; nothing if it is not there.
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
    let Some(header) = lines.next().and_then(checked) else {
        // Empty, or torn in its first line: nothing was announced yet.
        return Ok(replay);
    };
    match header.split(' ').collect::<Vec<_>>()[..] {
        ["justitia-journal", VERSION, of] if of == boot => {}
        ["justitia-journal", VERSION, _] => return Ok(replay),
        _ => {
            return Err(Error::failed(
                format!("{} has a format this version does not know", path.display()),
                "run `justitia restore` of the version that wrote it, or remove the file",
            ))
        }
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
        let knob = knob(words.next()?)?;
        match verb {
            "hold" => {
                let prior = value(knob, words.next()?)?;
                let path = Arc::from(words.next()?);
                self.entries.insert(
                    (group, knob),
                    Entry {
                        path,
                        prior,
                        written: Vec::new(),
                    },
                );
            }
            "wrote" => {
                let value = value(knob, words.next()?)?;
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
#[path = "journal_tests.rs"]
mod tests;
