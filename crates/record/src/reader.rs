//! Reads a record: sessions and ticks in order, and notes of what could not be read.
//!
//! Damage costs the ticks up to the next keyframe, and is said with its place. Only what is of a
//! later version, or no record at all, is an error.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::decode::{Decoder, Trouble};
use crate::derive::DERIVATIONS;
use crate::error::{Error, Result};
use crate::frame::{
    format_of, Frames, Piece, CRITICAL, DEFLATED, DELTA, END, KEY, PREAMBLE, SESSION,
};
use crate::model::{Session, Tick};
use crate::FORMAT;

/// What a record holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A session begins.
    Session(Session),
    /// A tick.
    Tick(Box<Tick>),
    /// What could not be read.
    Note(Note),
    /// The recorder ended in good order.
    End,
}

/// What could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Bytes in the middle are damaged.
    Damaged {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        bytes: u64,
        /// Whole ticks behind them that could not be used, because they build on what is damaged.
        unusable: u64,
        /// Where reading went on; `None`: nowhere.
        resumed_at: Option<u64>,
    },
    /// The end is not whole: the recorder was killed, or the disk was full.
    Torn {
        /// Where the end begins.
        offset: u64,
        /// How many bytes were dropped.
        bytes: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Damaged {
                offset,
                bytes,
                unusable,
                resumed_at,
            } => {
                write!(f, "{bytes} bytes at byte {offset} are damaged")?;
                if *unusable > 0 {
                    write!(f, ", and {unusable} ticks behind them build on them")?;
                }
                match resumed_at {
                    Some(at) => write!(f, "; reading went on at byte {at}"),
                    None => f.write_str("; nothing behind them can be read"),
                }
            }
            Note::Torn { offset, bytes } => write!(
                f,
                "the last {bytes} bytes, from byte {offset}, are not whole: dropped"
            ),
        }
    }
}

/// Damage that has not been left behind yet.
#[derive(Debug, Clone, Copy)]
struct Damage {
    offset: u64,
    bytes: u64,
    unusable: u64,
}

/// A record that is being read.
#[derive(Debug)]
pub struct Reader<R> {
    name: String,
    frames: Frames<R>,
    decoder: Decoder,
    written_by: String,
    damage: Option<Damage>,
    ready: VecDeque<Item>,
    failed: bool,
}

impl Reader<File> {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Reader<File>> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| Error::io("open", &name, &error))?;
        Reader::new(file, &name)
    }
}

impl<R: Read> Reader<R> {
    /// Reads from anywhere; `name` is for messages.
    pub fn new(mut input: R, name: &str) -> Result<Reader<R>> {
        check_preamble(&mut input, name)?;
        Ok(Reader {
            name: name.to_owned(),
            frames: Frames::new(input, PREAMBLE as u64),
            decoder: Decoder::default(),
            written_by: "of the version that wrote it".to_owned(),
            damage: None,
            ready: VecDeque::new(),
            failed: false,
        })
    }

    /// Bytes of the file read so far.
    pub fn offset(&self) -> u64 {
        self.frames.offset()
    }

    fn advance(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            let piece = self.frames.next();
            let piece = piece.map_err(|error| Error::io("read", &self.name, &error))?;
            match piece {
                None => {
                    self.leave_damage(None);
                    let last = self.ready.pop_front();
                    return Ok(last);
                }
                Some(Piece::Torn { offset, bytes }) => {
                    self.leave_damage(None);
                    self.ready
                        .push_back(Item::Note(Note::Torn { offset, bytes }));
                }
                Some(Piece::Damaged { offset, bytes }) => self.meet_damage(offset, bytes),
                Some(Piece::Frame {
                    offset,
                    kind,
                    flags,
                    payload,
                }) => self.frame(offset, kind, flags, &payload)?,
            }
        }
    }

    fn frame(&mut self, offset: u64, kind: u8, flags: u8, payload: &[u8]) -> Result<()> {
        if flags & !(CRITICAL | DEFLATED) != 0 {
            return Err(self.newer(&format!("a frame with flags {flags:#x}"), offset));
        }
        match kind {
            SESSION => self.session(offset, payload),
            KEY | DELTA => self.tick(offset, kind, flags, payload),
            END => {
                self.ready.push_back(Item::End);
                Ok(())
            }
            _ if flags & CRITICAL != 0 => {
                Err(self.newer(&format!("a frame of kind {kind}"), offset))
            }
            _ => Ok(()),
        }
    }

    fn session(&mut self, offset: u64, payload: &[u8]) -> Result<()> {
        let Ok(session) = serde_json::from_slice::<Session>(payload) else {
            return Err(self.newer("a session", offset));
        };
        self.written_by.clone_from(&session.written_by);
        if session.derivations > DERIVATIONS {
            let what = format!("derivations of set {}", session.derivations);
            return Err(self.newer(&what, offset));
        }
        self.leave_damage(Some(offset));
        self.decoder = Decoder::default();
        self.ready.push_back(Item::Session(session));
        Ok(())
    }

    fn tick(&mut self, offset: u64, kind: u8, flags: u8, payload: &[u8]) -> Result<()> {
        match self.decoder.tick(kind, flags, payload) {
            Ok(tick) => {
                self.leave_damage(Some(offset));
                self.ready.push_back(Item::Tick(Box::new(tick)));
            }
            Err(Trouble::Unknown(what)) => {
                return Err(self.newer(&format!("a tick ({what})"), offset));
            }
            Err(Trouble::Damaged) => self.meet_damage(offset, payload.len() as u64),
            Err(Trouble::NoBase) => {
                // Without damage before it: what it builds on was cut out cleanly.
                self.meet_damage(offset, 0);
                if let Some(damage) = &mut self.damage {
                    damage.unusable += 1;
                }
            }
        }
        Ok(())
    }

    fn meet_damage(&mut self, offset: u64, bytes: u64) {
        self.decoder.lose();
        let damage = self.damage.get_or_insert(Damage {
            offset,
            bytes: 0,
            unusable: 0,
        });
        damage.bytes += bytes;
    }

    fn leave_damage(&mut self, resumed_at: Option<u64>) {
        if let Some(damage) = self.damage.take() {
            self.ready.push_back(Item::Note(Note::Damaged {
                offset: damage.offset,
                bytes: damage.bytes,
                unusable: damage.unusable,
                resumed_at,
            }));
        }
    }

    fn newer(&self, what: &str, offset: u64) -> Error {
        Error::newer(&self.name, what, offset, &self.written_by)
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Result<Item>> {
        if self.failed {
            return None;
        }
        let item = self.advance().transpose();
        self.failed = matches!(item, Some(Err(_)));
        item
    }
}

/// Reads the start of a file and refuses what is no record of a format that is known.
pub(crate) fn check_preamble(input: &mut impl Read, name: &str) -> Result<()> {
    let mut start = Vec::new();
    let read = input.take(PREAMBLE as u64).read_to_end(&mut start);
    match read {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            return Err(Error::not_a_record(name));
        }
        Err(error) => return Err(Error::io("read", name, &error)),
        Ok(0) => return Err(Error::empty(name)),
        Ok(_) => {}
    }
    match format_of(&start) {
        Some(FORMAT) if start.len() == PREAMBLE => Ok(()),
        Some(format) if format > FORMAT => Err(Error::newer_format(name, format)),
        _ => Err(Error::not_a_record(name)),
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
