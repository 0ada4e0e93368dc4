//! Activity around the containers: sysctls, limits, a stream of the root cgroup, commands, new weights.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result};

use super::container::{set_weight, Container};
use super::setup::{data_dir, CGROUP, TOOLS};
use super::{files, progress};
use crate::load::clock::{after, rest_until};
use crate::load::io::{open, Buffer, IO_BYTES};
use crate::load::sharing::write_uncached;
use crate::protocol::{RootStream, Surroundings, TimedCommand, TimedWeight};

pub fn set_vm(surroundings: &Surroundings) -> Result<()> {
    for (name, value) in &surroundings.vm {
        files::write(&Path::new("/proc/sys/vm").join(name), value)?;
    }
    Ok(())
}

pub fn limit(surroundings: &Surroundings, containers: &[Container]) -> Result<()> {
    for (container, limit) in containers.iter().zip(&surroundings.memory_max) {
        if let Some(limit) = limit {
            files::write(&container.group.join("memory.max"), &limit.to_string())?;
        }
    }
    Ok(())
}

fn stream_file() -> PathBuf {
    data_dir().join("root-stream")
}

/// Writes the file that the root cgroup will read.
pub fn prepare(surroundings: &Surroundings) -> Result<()> {
    match surroundings.root_stream {
        Some(stream) => write_uncached(&stream_file(), stream.bytes),
        None => Ok(()),
    }
}

/// The output of a command, or of a change of a weight; an error if it failed.
pub type Said = std::result::Result<String, String>;

/// Activity in parallel with the measurement; ended when dropped.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    stream: Option<JoinHandle<Result<()>>>,
    commands: Vec<JoinHandle<Said>>,
}

impl Running {
    /// Starts all of it, relative to an instant; commands only if there is an agent.
    pub fn start(surroundings: &Surroundings, start: Instant, agent: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stream = surroundings.root_stream.map(|stream| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || read_over_and_over(stream, start, &stop))
        });
        let commands = surroundings.commands.iter().filter(|_| agent).cloned();
        let commands = commands.map(|command| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || run(&command, start, &stop))
        });
        let weights = surroundings.weights.iter().cloned().map(|change| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let said = reweight(&change, start, &stop);
                said.map_err(|error| format!("weight of {}: {error:#}", change.group))
            })
        });
        let commands = commands.chain(weights).collect();
        Self {
            stop,
            stream,
            commands,
        }
    }

    /// Ends it and returns the output of the commands.
    pub fn end(self) -> Result<Vec<Said>> {
        self.stop.store(true, Ordering::Release);
        let said = self.commands.into_iter();
        let said = said.map(|thread| thread.join().unwrap_or_else(|_| Err("panicked".into())));
        let said = said.collect();
        match self.stream.map(JoinHandle::join) {
            Some(Ok(result)) => result.context("the stream of the root cgroup")?,
            Some(Err(_)) => anyhow::bail!("the stream of the root cgroup panicked"),
            None => {}
        }
        Ok(said)
    }
}

/// Waits until this many seconds after the start; false if it has to stop before.
fn wait(start: Instant, at_s: u32, stop: &AtomicBool) -> bool {
    rest_until(after(start, at_s), || stop.load(Ordering::Acquire))
}

/// The driver is in the root cgroup, so its reads are charged there.
fn read_over_and_over(stream: RootStream, start: Instant, stop: &AtomicBool) -> Result<()> {
    use std::io::Read as _;
    if !wait(start, stream.from_s, stop) {
        return Ok(());
    }
    progress("the root cgroup reads");
    let mut file: File = open(OpenOptions::new().read(true), false, &stream_file())?;
    let mut buffer = Buffer::new(IO_BYTES);
    let mut offset = 0;
    while !stop.load(Ordering::Acquire) {
        let mut read = 0;
        for _ in 0..2 {
            file.seek(SeekFrom::Start(offset))?;
            read = file.read(buffer.get_mut())? as u64;
        }
        offset = if read == 0 { 0 } else { offset + read };
    }
    Ok(())
}

/// Writes the weight at its time, and the prior values at the end.
fn reweight(change: &TimedWeight, start: Instant, stop: &AtomicBool) -> Result<String> {
    let TimedWeight { group, weight, .. } = change;
    if !wait(start, change.at_s, stop) {
        return Ok(format!("weight {weight} of {group}: not written"));
    }
    let dir = PathBuf::from(format!("{CGROUP}{group}"));
    let knobs = ["io.bfq.weight", "io.weight"].map(|knob| dir.join(knob));
    let knobs = knobs.iter().filter(|knob| knob.exists());
    let prior = knobs.map(|knob| Ok((knob, files::read(knob)?)));
    let prior = prior.collect::<Result<Vec<_>>>()?;
    set_weight(&dir, u64::from(*weight))?;
    let said = format!("weight {weight} of {group}: written");
    progress(&said);
    wait(start, u32::MAX, stop);
    for (knob, text) in prior {
        // The first line is the default of all devices.
        files::write(knob, text.lines().next().unwrap_or_default())?;
    }
    Ok(said)
}

fn run(command: &TimedCommand, start: Instant, stop: &AtomicBool) -> Said {
    let line = format!("justitia {}", command.arguments.join(" "));
    if !wait(start, command.at_s, stop) {
        return Ok(format!("{line}: not run"));
    }
    let output = Command::new(Path::new(TOOLS).join("justitia"))
        .args(&command.arguments)
        .output();
    let said = match output {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).trim().replace('\n', "; ");
            let said = format!("{line}: {text} ({})", output.status);
            if output.status.success() {
                Ok(said)
            } else {
                Err(said)
            }
        }
        Err(error) => Err(format!("{line}: {error}")),
    };
    let (Ok(words) | Err(words)) = &said;
    progress(words);
    said
}
