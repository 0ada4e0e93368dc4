//! Follows a file that grows, is truncated, or is renamed and made again (logrotate).
//!
//! Reading starts at the end of the file that exists at the first look, and at the beginning of each later
//! file. When the name leads to another file, the rest of the old one is read first. A line counts once it is
//! complete. A look reads at most [`MOST_BYTES`]; bytes that are skipped are counted.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use justitia_report::error::plain;
use rustix::fs::{Mode, OFlags};

use crate::Trouble;

/// Bytes that are read at one look, at most.
const MOST_BYTES: u64 = 16 << 20;
/// Bytes of one read call.
const BLOCK_BYTES: usize = 64 << 10;
/// Longest line; the rest of a longer line is dropped.
const MOST_LINE_BYTES: usize = 64 << 10;

struct Open {
    file: File,
    id: (u64, u64),
    at: u64,
}

pub(super) struct Tail {
    path: PathBuf,
    open: Option<Open>,
    /// True after the first look. Lines that were in the file then are old.
    begun: bool,
    /// The last line, while it is incomplete.
    partial: Vec<u8>,
}

impl Tail {
    pub(super) fn new(path: PathBuf) -> Tail {
        Tail {
            path,
            open: None,
            begun: false,
            partial: Vec::new(),
        }
    }

    /// Length of the incomplete line.
    #[cfg(test)]
    pub(super) fn pending(&self) -> usize {
        self.partial.len()
    }

    /// Passes each new line to `each`; returns the number of bytes that were skipped.
    pub(super) fn read(&mut self, mut each: impl FnMut(&str)) -> Result<u64, Trouble> {
        self.follow(&mut each)
            .map_err(|error| trouble(&self.path, &error))
    }

    fn follow(&mut self, each: &mut impl FnMut(&str)) -> io::Result<u64> {
        let mut skipped = 0;
        if let Some(open) = &mut self.open {
            skipped += open.rest(&mut self.partial, each)?;
        }
        match std::fs::metadata(&self.path) {
            Ok(there) => {
                let id = (there.dev(), there.ino());
                if self.open.as_ref().is_none_or(|open| open.id != id) {
                    let mut open = self.open_file()?;
                    self.partial.clear();
                    skipped += open.rest(&mut self.partial, each)?;
                    self.open = Some(open);
                }
                Ok(skipped)
            }
            // Between rename and creation, the old file is still open.
            Err(error) if error.kind() == ErrorKind::NotFound && self.open.is_some() => Ok(skipped),
            Err(error) => {
                self.begun |= error.kind() == ErrorKind::NotFound;
                Err(error)
            }
        }
    }

    fn open_file(&mut self) -> io::Result<Open> {
        // The open of a FIFO would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&self.path, flags, Mode::empty())?);
        let meta = file.metadata()?;
        if !meta.is_file() {
            // Like a log without requests, a directory or a device has no lines to read.
            return Err(io::Error::other("it is not a regular file"));
        }
        let at = if self.begun { 0 } else { meta.len() };
        self.begun = true;
        Ok(Open {
            id: (meta.dev(), meta.ino()),
            file,
            at,
        })
    }
}

impl Open {
    /// Reads to the end of the file; returns the number of bytes that were skipped.
    fn rest(&mut self, partial: &mut Vec<u8>, each: &mut impl FnMut(&str)) -> io::Result<u64> {
        let length = self.file.metadata()?.len();
        if length < self.at {
            self.at = 0;
            partial.clear();
        }
        let skipped = (length - self.at).saturating_sub(MOST_BYTES);
        if skipped > 0 {
            self.at += skipped;
            partial.clear();
        }
        let mut block = vec![0; BLOCK_BYTES.min((length - self.at) as usize)];
        while self.at < length {
            let read = self.file.read_at(&mut block, self.at)?;
            if read == 0 {
                break;
            }
            self.at += read as u64;
            for piece in block[..read].split_inclusive(|&byte| byte == b'\n') {
                if partial.len() < MOST_LINE_BYTES {
                    partial.extend_from_slice(piece);
                }
                if piece.ends_with(b"\n") {
                    each(String::from_utf8_lossy(partial).trim_end());
                    partial.clear();
                }
            }
        }
        Ok(skipped)
    }
}

fn trouble(path: &std::path::Path, error: &io::Error) -> Trouble {
    let remedy = match error.kind() {
        ErrorKind::NotFound => "check the path; the probe waits for the file",
        ErrorKind::PermissionDenied => "let this user read it (the group adm on Debian)",
        _ => "check that it is a file that can be read",
    };
    Trouble::failed(
        format!("cannot read {}: {}", path.display(), plain(error)),
        remedy,
    )
}
