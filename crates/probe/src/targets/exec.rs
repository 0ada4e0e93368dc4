//! Any command. Its exit code is a color (0 green, 1 yellow, 2 red), or the first number that it prints is
//! compared with thresholds.
//!
//! The command runs in a process group of its own, without input. The whole group is killed when the command
//! takes longer than the timeout, when it ended and left something behind, and when the probe ends.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use justitia_policy::color::Color;
use justitia_report::error::plain;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{kill_process_group, pidfd_open, Pid, PidfdFlags, Signal};

use super::Target;
use crate::measure::Measurement;
use crate::Trouble;

/// Bytes of a command's output that are read, at most.
const MOST_BYTES: usize = 64 << 10;

/// The command and how to run it.
#[derive(Debug, Clone)]
pub struct Config {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// True if the number that the command prints counts, instead of its exit code.
    pub prints: bool,
    /// Time after which it is killed.
    pub timeout: Duration,
    /// Holds its process group while it runs.
    pub running: Running,
}

/// The process group of the running command, shared with the code that has to end it.
#[derive(Debug, Clone, Default)]
pub struct Running(Arc<Mutex<Option<Pid>>>);

impl Running {
    /// Kills the running command, if there is one.
    pub fn end(&self) {
        let group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = *group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    fn note(&self, group: Option<Pid>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = group;
    }
}

pub struct Exec(Config);

impl Exec {
    pub fn new(config: Config) -> Exec {
        Exec(config)
    }

    fn start(&self) -> Result<Child, Trouble> {
        let Some((program, arguments)) = self.0.command.split_first() else {
            return Err(Trouble::failed("no command given", "give one after --"));
        };
        Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| {
                Trouble::failed(
                    format!(
                        "cannot run {}: {}",
                        program.to_string_lossy(),
                        plain(&error)
                    ),
                    "check that the program exists and is executable",
                )
            })
    }

    /// Runs the command to its end. Returns its output and exit status, or `None` if it was killed for time.
    fn run(&self) -> Result<Option<(Vec<u8>, ExitStatus)>, Trouble> {
        let deadline = Instant::now() + self.0.timeout;
        let mut child = self.start()?;
        let group = Pid::from_child(&child);
        self.0.running.note(Some(group));
        let waited = child_ended(&mut child, group, deadline);
        // Before it is waited for: until then, no other process can have its number.
        let _ = kill_process_group(group, Signal::KILL);
        self.0.running.note(None);
        let status = child.wait();
        let Some(printed) = waited.map_err(|errno| lost(&errno))? else {
            return Ok(None);
        };
        Ok(Some((printed, status.map_err(|error| lost(&error))?)))
    }
}

impl Target for Exec {
    fn measure(&mut self) -> Result<Measurement, Trouble> {
        let Some((printed, status)) = self.run()? else {
            return Err(Trouble::failed(
                format!("the command takes longer than {:?}", self.0.timeout),
                "make it faster, or allow more with --timeout and --interval",
            ));
        };
        if self.0.prints {
            of_number(&printed, status)
        } else {
            of_status(status)
        }
    }
}

/// Reads what the child prints until it ends; `None` if it does not end before the deadline. Closes the pipe.
fn child_ended(child: &mut Child, group: Pid, deadline: Instant) -> Result<Option<Vec<u8>>, Errno> {
    let pidfd = pidfd_open(group, PidfdFlags::empty())?;
    let mut printed = Vec::new();
    let mut pipe = child.stdout.take().map(OwnedFd::from);
    if let Some(pipe) = &pipe {
        rustix::io::ioctl_fionbio(pipe, true)?;
    }
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let mut polled = vec![PollFd::new(&pidfd, PollFlags::IN)];
        if let Some(pipe) = &pipe {
            polled.push(PollFd::new(pipe, PollFlags::IN));
        }
        let limit = Timespec::try_from(left).ok();
        match poll(&mut polled, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let ended = !polled[0].revents().is_empty();
        // The command's output up to its end is in the pipe by now.
        if pipe.as_ref().is_some_and(|pipe| drain(pipe, &mut printed)) {
            pipe = None;
        }
        if ended {
            return Ok(Some(printed));
        }
    }
}

/// Reads what is available; returns true at the end of the stream.
fn drain(pipe: impl AsFd, printed: &mut Vec<u8>) -> bool {
    let mut block = [0; 4096];
    loop {
        match rustix::io::read(&pipe, &mut block) {
            Ok(0) => return true,
            Ok(read) => {
                let room = MOST_BYTES - printed.len();
                printed.extend_from_slice(&block[..read.min(room)]);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
}

fn of_status(status: ExitStatus) -> Result<Measurement, Trouble> {
    let color = match status.code() {
        Some(0) => Color::Green,
        Some(1) => Color::Yellow,
        Some(2) => Color::Red,
        _ => return Err(ended(status)),
    };
    Ok(Measurement {
        color: Some(color),
        ..Measurement::default()
    })
}

fn of_number(printed: &[u8], status: ExitStatus) -> Result<Measurement, Trouble> {
    if !status.success() {
        return Err(ended(status));
    }
    let text = String::from_utf8_lossy(printed);
    let number = text
        .split_whitespace()
        .find_map(|word| word.parse::<f64>().ok())
        .filter(|number| !number.is_nan());
    match number {
        Some(value) => Ok(Measurement {
            value: Some(value),
            ..Measurement::default()
        }),
        None => Err(Trouble::failed(
            "the command prints no number",
            "let it print one; without --red and --yellow its exit code counts",
        )),
    }
}

fn ended(status: ExitStatus) -> Trouble {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exits with {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    };
    Trouble::failed(
        format!("the command {how}"),
        "0 is green, 1 yellow, 2 red; with thresholds it must exit with 0",
    )
}

fn lost(error: &dyn std::fmt::Display) -> Trouble {
    Trouble::failed(
        format!("cannot follow the command: {error}"),
        "the probe keeps trying",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(command: &str, prints: bool, timeout: Duration) -> Exec {
        Exec::new(Config {
            command: ["sh", "-c", command].map(OsString::from).to_vec(),
            prints,
            timeout,
            running: Running::default(),
        })
    }

    fn quick(command: &str, prints: bool) -> Result<Measurement, Trouble> {
        exec(command, prints, Duration::from_secs(10)).measure()
    }

    #[test]
    fn exit_codes_are_colors_and_others_are_trouble() {
        for (code, color) in [(0, Color::Green), (1, Color::Yellow), (2, Color::Red)] {
            let seen = quick(&format!("exit {code}"), false).unwrap();
            assert_eq!(seen.color, Some(color));
        }
        for command in ["exit 3", "exit 127", "kill -9 $$"] {
            assert!(quick(command, false).is_err(), "{command}");
        }
    }

    #[test]
    fn the_first_number_printed_counts() {
        let seen = quick("echo latency 0.25 of 9", true).unwrap();
        assert_eq!(seen.value, Some(0.25));
        assert!(quick("echo none", true).is_err());
        assert!(quick("echo 5; exit 1", true).is_err());
        assert!(quick("echo NaN", true).is_err());
    }

    #[test]
    fn a_command_that_prints_without_end_does_not_fill_the_memory() {
        let seen = quick("echo 7; head -c 3000000 /dev/zero", true).unwrap();
        assert_eq!(seen.value, Some(7.0));
    }

    #[test]
    fn a_program_that_is_not_there_is_trouble() {
        let mut exec = Exec::new(Config {
            command: vec!["/nonexistent/program".into()],
            prints: false,
            timeout: Duration::from_secs(1),
            running: Running::default(),
        });
        assert!(exec.measure().unwrap_err().cause.contains("/nonexistent"));
    }

    /// True if no process is left in the group whose leader wrote its number into the file.
    fn group_is_gone(file: &std::path::Path) -> bool {
        let text = std::fs::read_to_string(file).unwrap();
        let group = Pid::from_raw(text.trim().parse().unwrap()).unwrap();
        (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            rustix::process::test_kill_process_group(group).is_err()
        })
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let command = format!("echo $$ >{}; sleep 60 & sleep 60", file.display());
        let start = Instant::now();
        let timeout = Duration::from_secs(1);
        assert!(exec(&command, false, timeout).measure().is_err());
        assert!(start.elapsed() < Duration::from_secs(10));
        assert!(group_is_gone(&file));
    }

    #[test]
    fn processes_that_a_command_leaves_behind_neither_block_nor_stay() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let command = format!("echo $$ >{}; sleep 60 & exit 1", file.display());
        let start = Instant::now();
        let seen = quick(&command, false).unwrap();
        assert_eq!(seen.color, Some(Color::Yellow));
        assert!(start.elapsed() < Duration::from_secs(5));
        assert!(group_is_gone(&file));
    }

    #[test]
    fn the_end_of_the_probe_ends_the_command() {
        let mut exec = exec("sleep 60", false, Duration::from_secs(60));
        let running = exec.0.running.clone();
        let start = Instant::now();
        let thread = std::thread::spawn(move || exec.measure());
        while running.0.lock().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        running.end();
        assert!(thread.join().unwrap().is_err());
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
