//! The container of a record: zstd frames after a preamble.
//!
//! ```text
//! file    magic[8]  format u16  reserved u16  frame...
//! frame   a zstd frame (RFC 8878) with content size and checksum
//! ```
//!
//! A frame is compressed with the contents of the previous frame as its prefix, so that only changes take
//! bytes. A **key frame** has no prefix. Frames are read in order. A frame that does not decode is damaged,
//! or builds on a damaged one. The reader then searches, byte by byte, for the next frame that decodes by
//! itself. If there is none, the rest is a torn end.
//!
//! Memory is bounded by [`LONGEST`], whatever a frame claims.

use std::fmt;
use std::io::{self, Read};

use zstd::bulk::Compressor;
use zstd::zstd_safe::{find_frame_compressed_size, get_frame_content_size, CParameter, DCtx};

/// The start of every record. The high bit and the line breaks reveal a transport that is not binary-safe.
pub(crate) const MAGIC: [u8; 8] = *b"\x89JREC\r\n\x1a";
/// Bytes before the first frame.
pub(crate) const PREAMBLE: usize = 12;
/// Largest contents and largest size of a frame, bytes. A group takes 1.3 KB, and as much again where the
/// policy's memory is recorded, so this is a step of some 6,000 groups.
pub(crate) const LONGEST: usize = 16 << 20;

/// zstd's default: higher levels cost four times the CPU and save 3 %.
const LEVEL: i32 = 3;
const FRAME_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// The low bits of a frame's descriptor: a checksum, no dictionary.
const CHECKED: u8 = 4;

/// The start of a file.
pub(crate) fn preamble(format: u16) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&format.to_le_bytes());
    bytes
}

/// The format of a file with this start; `None` if it is not a record.
pub(crate) fn format_of(preamble: &[u8]) -> Option<u16> {
    let rest = preamble.strip_prefix(&MAGIC)?;
    Some(u16::from_le_bytes([*rest.first()?, *rest.get(1)?]))
}

/// Encodes one frame for the file. `before`: the contents of the frame that it builds on, empty for a key
/// frame.
pub(crate) fn frame(contents: &[u8], before: &[u8]) -> io::Result<Vec<u8>> {
    if contents.len() > LONGEST {
        return Err(io::Error::other(format!(
            "a step of {} bytes is more than a record holds",
            contents.len()
        )));
    }
    let mut compressor = Compressor::new(LEVEL)?;
    compressor.set_parameter(CParameter::ChecksumFlag(true))?;
    // At this level zstd finds matches in the last MiB of a prefix only. Small frames would grow by half.
    let long = before.len() > 1 << 20;
    compressor.set_parameter(CParameter::EnableLongDistanceMatching(long))?;
    let prefix = compressor.context_mut().ref_prefix(before);
    prefix.map_err(|_| io::Error::other("zstd takes no prefix"))?;
    compressor.compress(contents)
}

/// A part of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A frame that decodes.
    Frame {
        /// Offset of the frame.
        offset: u64,
        contents: Vec<u8>,
    },
    /// Bytes that do not decode.
    Unread(Note),
}

/// A part of a record that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Bytes in the middle are damaged, or build on damaged ones.
    Damaged {
        /// Offset of the first of them.
        offset: u64,
        /// Number of them. Reading went on after them.
        bytes: u64,
    },
    /// Nothing up to the end decodes: the recorder was killed, or the disk was full.
    Torn {
        /// Offset of the torn end.
        offset: u64,
        /// Number of bytes that were dropped.
        bytes: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Damaged { offset, bytes } => write!(
                f,
                "{bytes} bytes at byte {offset} are damaged or depend on damaged ones; reading continued at byte {}",
                offset + bytes
            ),
            Note::Torn { offset, bytes } => write!(
                f,
                "the last {bytes} bytes, from byte {offset}, are incomplete: dropped"
            ),
        }
    }
}

/// The pieces of a file after its preamble.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    input: R,
    /// Bytes that were read; those from `start` on are not used yet.
    buffer: Vec<u8>,
    start: usize,
    /// Offset of `start` in the file.
    offset: u64,
    ended: bool,
    /// The contents of the previous frame; empty if they are missing.
    before: Vec<u8>,
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
            before: Vec::new(),
        }
    }

    /// Offset of the next piece in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> io::Result<Option<Piece>> {
        let began = self.offset;
        loop {
            let found = self.decode()?;
            let bytes = self.offset - began;
            match found {
                // It is decoded again at its turn.
                Some(_) if bytes > 0 => {
                    let offset = began;
                    return Ok(Some(Piece::Unread(Note::Damaged { offset, bytes })));
                }
                Some((length, contents)) => {
                    self.skip(length);
                    self.before.clone_from(&contents);
                    return Ok(Some(Piece::Frame {
                        offset: began,
                        contents,
                    }));
                }
                None if self.available().is_empty() => {
                    let offset = began;
                    return Ok((bytes > 0).then_some(Piece::Unread(Note::Torn { offset, bytes })));
                }
                None => {
                    self.before.clear();
                    let rest = &self.available()[1..];
                    let next = rest.iter().position(|&byte| byte == FRAME_MAGIC[0]);
                    self.skip(1 + next.unwrap_or(rest.len()));
                }
            }
        }
    }

    /// The length and contents of the frame that begins here, if it decodes.
    fn decode(&mut self) -> io::Result<Option<(usize, Vec<u8>)>> {
        self.fill(FRAME_MAGIC.len())?;
        if !self.available().starts_with(&FRAME_MAGIC) {
            return Ok(None);
        }
        let length = loop {
            let bytes = self.available();
            if let Ok(length) = find_frame_compressed_size(bytes) {
                break length;
            }
            if self.ended || bytes.len() >= LONGEST {
                return Ok(None);
            }
            self.fill(bytes.len() * 2)?;
        };
        let bytes = &self.available()[..length];
        if bytes[FRAME_MAGIC.len()] & 0x1f != CHECKED {
            return Ok(None);
        }
        let Ok(Some(size)) = get_frame_content_size(bytes) else {
            return Ok(None);
        };
        if size > LONGEST as u64 {
            return Ok(None);
        }
        let mut contents = Vec::with_capacity(size as usize);
        let mut context = DCtx::create();
        let decoded = context
            .ref_prefix(&self.before)
            .and_then(|_| context.decompress(&mut contents, bytes));
        Ok(decoded.is_ok().then_some((length, contents)))
    }

    fn available(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn skip(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Makes at least `wanted` bytes available, if the input has them.
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

#[cfg(test)]
mod tests;
