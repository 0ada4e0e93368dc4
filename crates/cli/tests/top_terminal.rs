//! Tests `justitia top` on a pseudo-terminal: it draws, and however it ends, it restores the terminal to
//! cooked mode, the main screen and a visible cursor.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use justitia_agent::socket::{Board, Server};
use justitia_policy::plan::Plan;
use justitia_report::status::{Setup, Tick};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{kill_process, Pid, Signal};
use rustix::pty::{grantpt, ioctl_tiocgptpeer, openpt, unlockpt, OpenptFlags};
use rustix::termios::{tcgetattr, tcsetwinsize, LocalModes, Winsize};

const OTHER_SCREEN: &str = "\x1b[?1049h";
const MAIN_SCREEN: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const PATIENCE: Duration = Duration::from_secs(20);

/// A pseudo-terminal on which `justitia top` runs.
struct Session {
    keyboard: OwnedFd,
    line: OwnedFd,
    child: Child,
    seen: String,
}

fn serve(dir: &Path) -> Server {
    let board = Arc::new(Board::new(Setup::default()));
    board.post(Tick {
        plan: Plan {
            pv: Some(0.77),
            ..Plan::default()
        },
        ..Tick::default()
    });
    Server::listen(&dir.join("agent.sock"), board).unwrap()
}

/// True if the terminal is in cooked mode with echo, as a shell leaves it.
fn cooked(line: &OwnedFd) -> bool {
    let modes = tcgetattr(line).unwrap().local_modes;
    modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
}

impl Session {
    fn start(dir: &Path) -> Session {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let line = ioctl_tiocgptpeer(&keyboard, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&keyboard, size).unwrap();
        assert!(cooked(&line), "a terminal begins as a shell leaves it");
        let end = || Stdio::from(line.try_clone().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_justitia"))
            .args(["top", "--interval", "100ms", "--state-dir"])
            .arg(dir)
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(Stdio::null())
            .spawn()
            .expect("run justitia");
        let mut session = Session {
            keyboard,
            line,
            child,
            seen: String::new(),
        };
        session.wait_for("0.77");
        session
    }

    fn press(&self, keys: &str) {
        rustix::io::write(&self.keyboard, keys.as_bytes()).unwrap();
    }

    /// Reads output until it contains the text.
    fn wait_for(&mut self, text: &str) {
        let began = Instant::now();
        while !self.seen.contains(text) {
            assert!(began.elapsed() < PATIENCE, "no {text:?} in {:?}", self.seen);
            self.read(100);
        }
    }

    fn read(&mut self, patience_ms: i64) {
        let mut ready = [PollFd::new(&self.keyboard, PollFlags::IN)];
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: patience_ms * 1_000_000,
        };
        if poll(&mut ready, Some(&patience)).unwrap() > 0 {
            let mut bytes = [0; 4096];
            let read = rustix::io::read(&self.keyboard, &mut bytes).unwrap();
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }

    /// Waits until the program ends by itself, checks the terminal, and returns the exit code.
    fn ends_well(mut self) -> i32 {
        let began = Instant::now();
        let status = loop {
            self.read(20);
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
        };
        self.wait_for(MAIN_SCREEN);
        assert!(cooked(&self.line), "the terminal is raw");
        let seen = self.seen.clone();
        assert!(seen.contains(OTHER_SCREEN));
        assert!(seen.rfind(MAIN_SCREEN) > seen.rfind(OTHER_SCREEN));
        assert!(seen.rfind(SHOW_CURSOR).is_some(), "{seen:?}");
        status.code().expect("an exit code")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_terminal_is_as_before_after_q_ctrl_c_and_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let _server = serve(dir.path());
    for key in ["q", "\x03"] {
        let session = Session::start(dir.path());
        assert!(!cooked(&session.line), "it reads single keys");
        session.press(key);
        assert_eq!(session.ends_well(), 0, "{key:?}");
    }
    let session = Session::start(dir.path());
    let pid = Pid::from_raw(i32::try_from(session.child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(session.ends_well(), 0);
}

#[test]
fn the_screen_says_that_the_agent_is_away_and_follows_it_once_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let mut session = Session::start(dir.path());
    drop(server);
    session.wait_for("no agent: nobody listens");
    session.seen.clear();
    let _server = serve(dir.path());
    // The line about the missing agent is gone, so the lines below it move up and are drawn again.
    session.wait_for("0.77");
    session.press("q");
    session.wait_for(MAIN_SCREEN);
    session.child.wait().unwrap();
    assert!(cooked(&session.line));
}
