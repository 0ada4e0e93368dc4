//! Writes a record: one `write(2)` for each tick, after the whole frames.
//!
//! Written data survives the writer at once (it is in the page cache), and the machine about a second later:
//! a separate thread calls `fdatasync(2)`, so that a slow disk does not delay the ticks. A frame that could
//! not be written whole (a full disk) is removed again.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{flock, FlockOperation};
use rustix::io::Errno;

use crate::encode::Encoder;
use crate::error::{self, Error, Result};
use crate::frame::{Frames, Note, Piece, PREAMBLE};
use crate::model::{Session, Tick};
use crate::reader::check_preamble;

/// Interval of `fdatasync`.
const SYNC_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    encoder: Encoder,
    /// Length of the file's whole frames, bytes.
    length: u64,
    /// Bytes of a torn end that were cut off before appending.
    dropped: u64,
    /// The file did not exist before.
    made: bool,
    syncer: Syncer,
    synced_at: Instant,
}

impl Writer {
    /// Creates the file, or with `append` opens an existing record.
    pub fn open(path: &Path, append: bool) -> Result<Writer> {
        let name = path.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let new = options.clone().create_new(true).open(path);
        let made = new.is_ok();
        let file = match new {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !append => {
                return Err(error::exists(path));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let old = options.open(path);
                old.map_err(|error| error::io("open", &name, &error))?
            }
            new => new.map_err(|error| error::io("make", &name, &error))?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(error::in_use(path)),
            Err(errno) => return Err(error::io("lock", &name, &errno.into())),
        }
        let syncer = file
            .try_clone()
            .and_then(|file| Syncer::start(move || file.sync_data()));
        let syncer = syncer.map_err(|error| error::io("sync", &name, &error))?;
        let mut writer = Writer {
            path: path.to_owned(),
            file,
            encoder: Encoder::new(),
            length: 0,
            dropped: 0,
            made,
            syncer,
            synced_at: Instant::now(),
        };
        if let Err(error) = writer.find_end() {
            writer.abandon();
            return Err(error);
        }
        Ok(writer)
    }

    /// Begins a session. Must precede its first tick.
    pub fn session(&mut self, session: &Session) -> Result<()> {
        let frame = self.encoder.session(session);
        let frame = frame.map_err(|error| self.io("encode a step for", &error))?;
        self.append(&frame)
    }

    pub fn tick(&mut self, tick: &Tick) -> Result<()> {
        let frame = self.encoder.tick(tick);
        let frame = frame.map_err(|error| self.io("encode a step for", &error))?;
        self.append(&frame)?;
        if self.synced_at.elapsed() >= SYNC_EVERY {
            self.synced_at = Instant::now();
            self.syncer.ask();
        }
        Ok(())
    }

    /// Marks the end of the session, and syncs everything to the disk.
    pub fn finish(mut self) -> Result<()> {
        let frame = Encoder::end().map_err(|error| self.io("encode the end of", &error))?;
        self.append(&frame)?;
        // The kernel reports an error of an open file once, to whoever syncs it next.
        let before = self.syncer.end();
        let synced = before.and_then(|()| self.file.sync_data());
        synced.map_err(|error| self.io("sync", &error))
    }

    /// Gives up the record, and removes the file if it did not exist before.
    pub fn abandon(self) {
        if self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Length of the file, bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of a torn end that were cut off before appending.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Finds the end of the whole frames, and cuts off the rest.
    fn find_end(&mut self) -> Result<()> {
        let name = self.path.display().to_string();
        let found = self.file.metadata();
        if found.map_err(|error| self.io("read", &error))?.len() == 0 {
            return self.append(&Encoder::preamble());
        }
        check_preamble(&mut self.file, &name)?;
        let mut frames = Frames::new(&self.file, PREAMBLE as u64);
        while let Some(piece) = frames.next().map_err(|error| self.io("read", &error))? {
            // Nothing follows a torn end.
            if let Piece::Unread(Note::Torn { bytes, .. }) = piece {
                self.dropped = bytes;
            }
        }
        self.length = frames.offset() - self.dropped;
        self.cut()
    }

    /// Appends a frame with one `write(2)`, and removes a partial frame.
    fn append(&mut self, frame: &[u8]) -> Result<()> {
        if let Err(error) = self.file.write_all(frame) {
            // If that fails, too, the end is torn, and readers drop it.
            let _ = self.cut();
            // The next frame must not build on a frame that is not there.
            self.encoder = Encoder::new();
            return Err(self.io("write", &error));
        }
        self.length += frame.len() as u64;
        Ok(())
    }

    /// Truncates the file to its whole frames.
    fn cut(&mut self) -> Result<()> {
        let cut = self.file.set_len(self.length);
        let cut = cut.and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
        cut.map_err(|error| self.io("cut", &error))?;
        Ok(())
    }

    fn io(&self, doing: &str, error: &io::Error) -> Error {
        error::io(doing, &self.path.display().to_string(), error)
    }
}

/// The thread that syncs the file to the disk. It ends with the first error.
#[derive(Debug)]
struct Syncer(Option<(SyncSender<()>, JoinHandle<io::Result<()>>)>);

impl Syncer {
    fn start(mut sync: impl FnMut() -> io::Result<()> + Send + 'static) -> io::Result<Syncer> {
        let (asked, answers) = sync_channel(1);
        let thread = thread::Builder::new().name("sync".into()).spawn(move || {
            while answers.recv().is_ok() {
                sync()?;
            }
            Ok(())
        })?;
        Ok(Syncer(Some((asked, thread))))
    }

    /// Requests a sync. Does not wait, even while one is in progress.
    fn ask(&self) {
        if let Some((asked, _)) = &self.0 {
            let _ = asked.try_send(());
        }
    }

    /// Waits for the end of the thread, and returns its error.
    fn end(&mut self) -> io::Result<()> {
        let Some((asked, thread)) = self.0.take() else {
            return Ok(());
        };
        drop(asked);
        let ended = thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the thread that syncs panicked")))
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_an_earlier_sync_is_reported_at_the_end() {
        let mut results = vec![Err(io::Error::other("the disk is gone")), Ok(())];
        let (synced, waits) = sync_channel(0);
        let syncer = Syncer::start(move || {
            let _ = synced.send(());
            results.remove(0)
        });
        let mut syncer = syncer.unwrap();
        syncer.ask();
        waits.recv().unwrap();
        assert_eq!(syncer.end().unwrap_err().to_string(), "the disk is gone");
    }
}
