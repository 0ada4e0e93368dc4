//! Reads a record: sessions and ticks in order, and notes on the parts that could not be read.
//!
//! Damage costs the ticks up to the next key frame, and is reported with its place. Only a file of a later
//! version, or one that is not a record, is an error.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize as _;

use crate::encode::Item;
use crate::error::{self, Result};
use crate::frame::{format_of, Frames, Piece, PREAMBLE};
use crate::FORMAT;

/// Deepest nesting of values; those of a tick are ten deep.
const DEEPEST: usize = 64;

#[derive(Debug)]
pub struct Reader<R> {
    name: String,
    frames: Frames<R>,
    written_by: String,
    failed: bool,
}

impl Reader<File> {
    pub fn open(path: &Path) -> Result<Reader<File>> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| error::io("open", &name, &error))?;
        Reader::new(file, &name)
    }
}

impl<R: Read> Reader<R> {
    /// Reads from any input; `name` is for messages.
    pub fn new(mut input: R, name: &str) -> Result<Reader<R>> {
        check_preamble(&mut input, name)?;
        Ok(Reader {
            name: name.to_owned(),
            frames: Frames::new(input, PREAMBLE as u64),
            written_by: "of the version that wrote it".to_owned(),
            failed: false,
        })
    }

    fn advance(&mut self) -> Result<Option<Item>> {
        let piece = self.frames.next();
        match piece.map_err(|error| error::io("read", &self.name, &error))? {
            None => Ok(None),
            Some(Piece::Unread(note)) => Ok(Some(Item::Note(note))),
            Some(Piece::Frame { offset, contents }) => self.item(offset, &contents).map(Some),
        }
    }

    /// Decodes the contents of a frame. Its checksum is right, so contents that do not parse are of a later
    /// version.
    fn item(&mut self, offset: u64, contents: &[u8]) -> Result<Item> {
        let mut deserializer = rmp_serde::Deserializer::from_read_ref(contents);
        deserializer.set_max_depth(DEEPEST);
        let item: Item = Item::deserialize(&mut deserializer).map_err(|error| {
            error::newer(&self.name, &error.to_string(), offset, &self.written_by)
        })?;
        if let Item::Session(session) = &item {
            self.written_by.clone_from(&session.written_by);
        }
        Ok(item)
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

/// Reads the start of a file, and refuses a file that is not a record of a known format.
pub(crate) fn check_preamble(input: &mut impl Read, name: &str) -> Result<()> {
    let mut start = Vec::new();
    let read = input.take(PREAMBLE as u64).read_to_end(&mut start);
    match read {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            return Err(error::not_a_record(name));
        }
        Err(error) => return Err(error::io("read", name, &error)),
        Ok(0) => return Err(error::empty(name)),
        Ok(_) => {}
    }
    match format_of(&start) {
        Some(FORMAT) if start.len() == PREAMBLE => Ok(()),
        Some(format) if format > FORMAT => Err(error::newer_format(name, format)),
        Some(format) if (1..FORMAT).contains(&format) => Err(error::older_format(name, format)),
        _ => Err(error::not_a_record(name)),
    }
}

#[cfg(test)]
mod tests;
