//! Writes a record: one `write(2)` for each tick, behind what is whole.
//!
//! What is written survives the writer at once (it is the kernel's) and the machine a second or so
//! later: a thread of its own calls `fdatasync(2)`, so that a slow disk does not hold up the ticks.
//! A frame that could not be written whole (a full disk) is taken back.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{flock, FlockOperation};

use crate::encode::Encoder;
use crate::error::{Error, Result};
use crate::frame::{Frames, Piece, PREAMBLE};
use crate::model::{Session, Tick};
use crate::reader::check_preamble;

/// How often what was written is brought to the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// What to do with a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leave it alone.
    Refuse,
    /// Go on with it, if it is a record.
    Append,
}

/// A record that is being written.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    encoder: Encoder,
    /// Bytes of the file that are whole.
    length: u64,
    /// Bytes of a torn end that were cut off to go on with the file.
    dropped: u64,
    /// The file was not there before.
    made: bool,
    syncer: Option<Syncer>,
    synced_at: Instant,
}

impl Writer {
    /// Makes the file, or opens it to go on with it.
    pub fn open(path: &Path, existing: Existing) -> Result<Writer> {
        let name = path.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let new = options.clone().create_new(true).open(path);
        let made = new.is_ok();
        let file = match new {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if existing == Existing::Refuse {
                    return Err(Error::exists(path));
                }
                options
                    .open(path)
                    .map_err(|error| Error::io("open", &name, &error))?
            }
            new => new.map_err(|error| Error::io("make", &name, &error))?,
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Error::in_use(path));
        }
        let syncer = Syncer::start(&file).map_err(|error| Error::io("sync", &name, &error))?;
        let mut writer = Writer {
            path: path.to_owned(),
            file,
            encoder: Encoder::new(),
            length: 0,
            dropped: 0,
            made,
            syncer: Some(syncer),
            synced_at: Instant::now(),
        };
        writer.find_end()?;
        Ok(writer)
    }

    /// Begins a session; before its first tick.
    pub fn session(&mut self, session: &Session) -> Result<()> {
        let frame = self.encoder.session(session);
        let frame = frame.map_err(|error| self.io("encode a step for", &error))?;
        self.append(&frame)
    }

    /// Appends a tick.
    pub fn tick(&mut self, tick: &Tick) -> Result<()> {
        let frame = self.encoder.tick(tick);
        let frame = frame.map_err(|error| self.io("encode a step for", &error))?;
        self.append(&frame)?;
        if self.synced_at.elapsed() >= SYNC_EVERY {
            self.synced_at = Instant::now();
            if let Some(syncer) = &self.syncer {
                syncer.ask();
            }
        }
        Ok(())
    }

    /// Says that it ended in good order, and brings everything to the disk.
    pub fn finish(mut self) -> Result<()> {
        let frame = Encoder::end().map_err(|error| self.io("encode the end of", &error))?;
        self.append(&frame)?;
        self.syncer = None;
        let synced = self.file.sync_data();
        synced.map_err(|error| self.io("sync", &error))
    }

    /// Nothing came of it: a file that was not there before goes again.
    pub fn abandon(self) {
        if self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of a torn end that were cut off to go on with the file.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Finds where what is whole ends, and cuts off the rest.
    fn find_end(&mut self) -> Result<()> {
        let name = self.path.display().to_string();
        let size = self
            .file
            .metadata()
            .map_err(|error| self.io("read", &error))?
            .len();
        if size == 0 {
            return self.append(&Encoder::preamble());
        }
        check_preamble(&mut self.file, &name)?;
        let mut frames = Frames::new(&self.file, PREAMBLE as u64);
        loop {
            let piece = frames.next();
            match piece.map_err(|error| self.io("read", &error))? {
                Some(Piece::Torn { offset, bytes }) => {
                    self.length = offset;
                    self.dropped = bytes;
                    break;
                }
                Some(_) => {}
                None => {
                    self.length = frames.offset();
                    break;
                }
            }
        }
        self.cut()
    }

    /// One `write(2)`; what of it did not fit is taken back.
    fn append(&mut self, frame: &[u8]) -> Result<()> {
        if let Err(error) = self.file.write_all(frame) {
            // If that fails too, the end is torn: readers drop it.
            let _ = self.cut();
            // What comes next must not build on what is not there.
            self.encoder = Encoder::new();
            return Err(self.io("write", &error));
        }
        self.length += frame.len() as u64;
        Ok(())
    }

    /// Ends the file where it is whole.
    fn cut(&mut self) -> Result<()> {
        let cut = self.file.set_len(self.length);
        let cut = cut.and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
        cut.map_err(|error| self.io("cut", &error))?;
        Ok(())
    }

    fn io(&self, doing: &str, error: &io::Error) -> Error {
        Error::io(doing, &self.path.display().to_string(), error)
    }
}

/// The thread that brings the file to the disk.
#[derive(Debug)]
struct Syncer {
    asked: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    fn start(file: &File) -> io::Result<Syncer> {
        let file = file.try_clone()?;
        let (asked, answers) = sync_channel(1);
        let thread = thread::Builder::new().name("sync".into()).spawn(move || {
            while answers.recv().is_ok() {
                // What does not reach the disk is still in the page cache; the last sync, at the
                // end, tells of errors.
                let _ = file.sync_data();
            }
        })?;
        Ok(Syncer {
            asked: Some(asked),
            thread: Some(thread),
        })
    }

    /// Does not wait, not even if it is still at it.
    fn ask(&self) {
        if let Some(asked) = &self.asked {
            let _ = asked.try_send(());
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.asked = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
