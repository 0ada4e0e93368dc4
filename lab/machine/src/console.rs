//! Runs QEMU, follows its console and ends it: on time, or with this process.
//!
//! Invariants: when [`watch`] returns, QEMU has ended; when this process dies, also of a terminal's
//! interrupt, QEMU dies with it, and a later run removes its disks; the log has the whole console.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{LabError, OrCannot, Result};
use crate::tools::first_complaint;

/// Time for a guest that panicked to print where; then it is ended.
const LAST_WORDS: Duration = Duration::from_secs(3);

const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// QEMU exited on its own without an error.
    PoweredOff,
    /// The kernel panicked; the first line that reported it.
    Panicked(String),
    /// The deadline passed and QEMU was killed.
    TimedOut,
    /// QEMU exited with an error; the first line of its message.
    QemuFailed(String),
    /// The line handler asked to stop and QEMU was killed.
    Stopped,
}

/// Runs `command` until it ends, writes each console line to `log` and passes it to `on_line`, which says
/// whether to stop.
pub fn watch(
    command: &mut Command,
    log: &Path,
    timeout: Duration,
    on_line: &mut dyn FnMut(&str) -> bool,
) -> Result<Ending> {
    let log_file = File::create(log).or_cannot("create", log)?;
    let mut complaints =
        tempfile::tempfile().or_cannot("create a file in", &std::env::temp_dir())?;
    let for_child = complaints.try_clone().or_cannot("duplicate", log)?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(for_child)
        .process_group(0);
    // SAFETY: between fork and exec the closure makes one system call (prctl) and touches no
    // memory, locks or allocator of the parent.
    unsafe {
        command.pre_exec(|| {
            let signal = rustix::process::Signal::KILL;
            Ok(rustix::process::set_parent_process_death_signal(Some(
                signal,
            ))?)
        });
    }
    let mut child = Reaped(command.spawn().map_err(|error| {
        LabError::environment(
            format!("cannot start QEMU: {error}"),
            "install with: apt-get install qemu-system-x86",
        )
    })?);
    let stdout = child.0.stdout.take().expect("stdout is piped");
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || copy_lines(stdout, log_file, &sender));

    let mut deadline = Instant::now() + timeout;
    let mut panic = None;
    let ending = loop {
        match receiver.recv_timeout(POLL) {
            Ok(line) => {
                if panic.is_none() && is_panic(&line) {
                    deadline = deadline.min(Instant::now() + LAST_WORDS);
                    panic = Some(line.clone());
                }
                if on_line(&line) {
                    break Ending::Stopped;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Ending::PoweredOff,
        }
        if Instant::now() >= deadline {
            break Ending::TimedOut;
        }
    };
    if ending != Ending::PoweredOff {
        // It may have ended already.
        let _ = child.0.kill();
    }
    let status = child.0.wait().or_cannot("wait for QEMU of", log)?;
    // The reader ends with the pipe; its only result is the log.
    let _ = reader.join();
    Ok(match (ending, panic) {
        (_, Some(line)) => Ending::Panicked(line),
        (Ending::PoweredOff, None) if !status.success() => {
            let mut said = String::new();
            let _ = complaints.rewind();
            let _ = complaints.read_to_string(&mut said);
            Ending::QemuFailed(match said.trim() {
                "" => status.to_string(),
                said => first_complaint(said),
            })
        }
        (ending, None) => ending,
    })
}

/// Copies the console to the log as it arrives and passes on its lines.
fn copy_lines(from: impl Read, mut log: File, to: &mpsc::Sender<String>) {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // A full disk must not stop the guest; the report does not depend on the log.
        let _ = log.write_all(&line);
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if to.send(text).is_err() {
            return;
        }
    }
}

/// Lines with which a kernel reports that it is broken. Programs are not expected to print them.
fn is_panic(line: &str) -> bool {
    [
        "Kernel panic - not syncing",
        "Oops: ",
        "BUG: unable to handle",
        "kernel BUG at ",
    ]
    .iter()
    .any(|sign| line.contains(sign))
}

/// Kills the child when dropped.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch_shell(script: &str, timeout_ms: u64) -> (Ending, Vec<String>, String) {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut lines = Vec::new();
        let ending = watch(
            Command::new("sh").args(["-c", script]),
            log.path(),
            Duration::from_millis(timeout_ms),
            &mut |line| {
                lines.push(line.to_owned());
                line == "stop"
            },
        )
        .unwrap();
        (ending, lines, std::fs::read_to_string(log.path()).unwrap())
    }

    #[test]
    fn the_whole_console_is_logged_and_handed_on() {
        let (ending, lines, log) = watch_shell("printf 'one\\r\\ntwo'", 10_000);
        assert_eq!(ending, Ending::PoweredOff);
        assert_eq!(lines, ["one", "two"]);
        assert_eq!(log, "one\r\ntwo");
    }

    #[test]
    fn a_guest_that_hangs_is_killed_at_its_deadline() {
        let begin = Instant::now();
        let (ending, ..) = watch_shell("exec sleep 30", 200);
        assert_eq!(ending, Ending::TimedOut);
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_panic_is_told_from_a_power_off_and_from_a_hang() {
        let panic = "echo '[ 1.0] Kernel panic - not syncing: x'";
        let (ending, ..) = watch_shell(panic, 10_000);
        assert!(matches!(ending, Ending::Panicked(line) if line.contains("not syncing: x")));
        let (ending, ..) = watch_shell(&format!("{panic}; exec sleep 30"), 20_000);
        assert!(matches!(ending, Ending::Panicked(_)));
    }

    #[test]
    fn a_complaint_of_qemu_is_reported() {
        let (ending, ..) = watch_shell("echo 'no such device' >&2; exit 1", 10_000);
        assert_eq!(ending, Ending::QemuFailed("no such device".into()));
    }

    #[test]
    fn the_handler_can_stop_the_guest() {
        let (ending, lines, _) = watch_shell("echo stop; exec sleep 30", 20_000);
        assert_eq!((ending, lines.len()), (Ending::Stopped, 1));
    }
}
