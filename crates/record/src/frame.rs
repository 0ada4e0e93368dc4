//! Frames: pieces of a file that each check themselves.
//!
//! ```text
//! file    magic[8]  format u16  reserved u16  frame...
//! frame   marker[2] kind u8  flags u8  length u32  crc32c u32  payload[length]
//! ```
//!
//! Numbers are little endian. The checksum is over kind, flags, length and payload. A reader that
//! finds no valid frame where one should begin looks for the next one, byte by byte; if there is
//! none, what is left is a torn end.
//!
//! A kind that a reader does not know is passed over, unless its flag `CRITICAL` is set: then what
//! follows cannot be understood without it. A flag that is not known counts as critical.

use std::io::{self, Read};

use crate::crc::crc32c;

/// What every record begins with. The high bit and the line breaks find out about transports that
/// are not made for bytes.
pub(crate) const MAGIC: [u8; 8] = *b"\x89JREC\r\n\x1a";
/// Bytes before the first frame.
pub(crate) const PREAMBLE: usize = 12;

const MARKER: [u8; 2] = [0xf7, 0x4a];
const HEAD: usize = 12;
/// Longer frames are not written, so that a damaged length is not believed for long.
pub(crate) const LONGEST: usize = 64 << 20;

/// The payload is deflated (RFC 1951).
pub(crate) const DEFLATED: u8 = 1;
/// Who does not know the kind cannot go on.
pub(crate) const CRITICAL: u8 = 0x80;

/// The start of a session: JSON, see [`crate::Session`]. Critical.
pub(crate) const SESSION: u8 = 1;
/// A tick in full. Critical.
pub(crate) const KEY: u8 = 2;
/// A tick as the difference to the one before. Critical.
pub(crate) const DELTA: u8 = 3;
/// The recorder ended by itself. Empty.
pub(crate) const END: u8 = 4;

/// The start of a file.
pub(crate) fn preamble(format: u16) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&format.to_le_bytes());
    bytes
}

/// The format of a file that begins like this; `None`: it is not a record.
pub(crate) fn format_of(preamble: &[u8]) -> Option<u16> {
    let rest = preamble.strip_prefix(&MAGIC)?;
    Some(u16::from_le_bytes([*rest.first()?, *rest.get(1)?]))
}

/// One frame as it goes to the file.
pub(crate) fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + payload.len());
    bytes.extend(MARKER);
    bytes.extend([kind, flags]);
    bytes.extend((payload.len() as u32).to_le_bytes());
    let sum = crc32c(&[&bytes[2..], payload]);
    bytes.extend(sum.to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// What a file is made of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A valid frame.
    Frame {
        /// Where it begins.
        offset: u64,
        kind: u8,
        flags: u8,
        payload: Vec<u8>,
    },
    /// Bytes that are no frame, with a valid one behind them.
    Damaged { offset: u64, bytes: u64 },
    /// Bytes that are no frame, with nothing valid behind them.
    Torn { offset: u64, bytes: u64 },
}

/// The pieces of a file behind its preamble.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    input: R,
    /// Bytes read and not yet used: from `start`.
    buffer: Vec<u8>,
    start: usize,
    /// Where in the file `start` is.
    offset: u64,
    ended: bool,
}

impl<R: Read> Frames<R> {
    /// The pieces of `input`, which begins at `offset` of the file.
    pub(crate) fn new(input: R, offset: u64) -> Frames<R> {
        Frames {
            input,
            buffer: Vec::new(),
            start: 0,
            offset,
            ended: false,
        }
    }

    /// Where in the file it is.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> io::Result<Option<Piece>> {
        let began = self.offset;
        loop {
            match self.candidate()? {
                Some(length) if self.offset == began => return Ok(Some(self.take(length))),
                Some(_) => {
                    let bytes = self.offset - began;
                    return Ok(Some(Piece::Damaged {
                        offset: began,
                        bytes,
                    }));
                }
                None if self.available().is_empty() => {
                    let bytes = self.offset - began;
                    let torn = Piece::Torn {
                        offset: began,
                        bytes,
                    };
                    return Ok((bytes > 0).then_some(torn));
                }
                None => {
                    let rest = &self.available()[1..];
                    let next = rest.iter().position(|&byte| byte == MARKER[0]);
                    self.skip(1 + next.unwrap_or(rest.len()));
                }
            }
        }
    }

    /// The payload's length of a valid frame that begins here.
    fn candidate(&mut self) -> io::Result<Option<usize>> {
        self.fill(HEAD)?;
        let head = self.available();
        if head.len() < HEAD || head[..2] != MARKER {
            return Ok(None);
        }
        let length = number(&head[4..8]) as usize;
        if length > LONGEST {
            return Ok(None);
        }
        self.fill(HEAD + length)?;
        let bytes = self.available();
        if bytes.len() < HEAD + length {
            return Ok(None);
        }
        let sum = crc32c(&[&bytes[2..8], &bytes[HEAD..HEAD + length]]);
        Ok((sum == number(&bytes[8..HEAD])).then_some(length))
    }

    fn take(&mut self, length: usize) -> Piece {
        let bytes = self.available();
        let piece = Piece::Frame {
            offset: self.offset,
            kind: bytes[2],
            flags: bytes[3],
            payload: bytes[HEAD..HEAD + length].to_vec(),
        };
        self.skip(HEAD + length);
        piece
    }

    fn available(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn skip(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Makes at least `wanted` bytes available, if there are as many.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        const CHUNK: usize = 64 << 10;
        while self.available().len() < wanted && !self.ended {
            if self.start >= CHUNK {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            let missing = (wanted - self.available().len()).max(CHUNK) as u64;
            let read = (&mut self.input)
                .take(missing)
                .read_to_end(&mut self.buffer)?;
            self.ended = (read as u64) < missing;
        }
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| (number << 8) | u32::from(byte))
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
