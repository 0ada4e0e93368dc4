//! A host in memory: texts by path, and injected errors.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::survey::HostFiles;
use crate::Buffer;

/// The texts of a host's files.
#[derive(Debug, Default)]
pub struct FakeHost {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Result<String, Errno>>,
    reads: BTreeMap<String, u32>,
}

impl FakeHost {
    /// A host without any file.
    pub fn new() -> FakeHost {
        FakeHost::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a text at a path.
    pub fn set(&self, path: &str, text: &str) {
        self.lock()
            .files
            .insert(path.to_owned(), Ok(text.to_owned()));
    }

    /// Makes every access to a path fail.
    pub fn refuse(&self, path: &str, errno: Errno) {
        self.lock().files.insert(path.to_owned(), Err(errno));
    }

    /// Takes a file away.
    pub fn remove(&self, path: &str) {
        self.lock().files.remove(path);
    }

    /// Number of reads of each file, by path.
    pub fn reads(&self) -> BTreeMap<String, u32> {
        self.lock().reads.clone()
    }
}

impl HostFiles for FakeHost {
    fn read(&self, path: &str, buffer: &mut Buffer) -> Result<(), Errno> {
        let mut state = self.lock();
        *state.reads.entry(path.to_owned()).or_default() += 1;
        let text = state
            .files
            .get(path)
            .cloned()
            .unwrap_or(Err(Errno::NOENT))?;
        buffer.refill().extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let state = self.lock();
        if let Some(Err(errno)) = state.files.get(path) {
            return Err(*errno);
        }
        let below = format!("{path}/");
        let mut names: Vec<String> = state
            .files
            .keys()
            .filter_map(|file| file.strip_prefix(&below)?.split('/').next())
            .map(str::to_owned)
            .collect();
        names.dedup();
        if names.is_empty() {
            return Err(Errno::NOENT);
        }
        Ok(names)
    }

    fn exists(&self, path: &str) -> Result<bool, Errno> {
        let state = self.lock();
        if let Some(Err(errno)) = state.files.get(path) {
            return Err(*errno);
        }
        let below = format!("{path}/");
        Ok(state
            .files
            .keys()
            .any(|file| file == path || file.starts_with(&below)))
    }
}
