//! Starts a server in a temporary directory, as a user without rights, and ends it with the test.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{geteuid, kill_process, Pid, Signal};
use tempfile::TempDir;

pub(crate) const STOP: Signal = Signal::STOP;
pub(crate) const CONTINUE: Signal = Signal::CONT;
pub(crate) const REOPEN_LOGS: Signal = Signal::USR1;

/// The user nobody, for tests that run as root: most servers refuse to run as root.
pub(crate) const NOBODY: u32 = 65534;

/// A directory that servers may write to.
pub(crate) fn directory() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    if geteuid().is_root() {
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    dir
}

/// A port that was free just now.
pub(crate) fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Path of a program, searched for in `PATH` and in the directories of servers.
pub(crate) fn program(name: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = path.split(':').map(PathBuf::from).collect();
    dirs.extend(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        dirs.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    dirs.iter()
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed: run scripts/setup --test"))
}

/// A command without privileges that ends when the thread that started it ends.
pub(crate) fn command(name: &str) -> Command {
    let mut command = Command::new(program("setpriv"));
    command.args(["--pdeathsig", "KILL"]);
    if geteuid().is_root() {
        let id = NOBODY.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    }
    command
        .arg(program(name))
        .env("HOME", "/nonexistent")
        .current_dir("/")
        .stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn run(mut command: Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// A server that runs.
pub(crate) struct Server {
    pub(crate) dir: TempDir,
    make: Box<dyn Fn(&Path) -> Command>,
    child: Child,
}

impl Server {
    /// Starts it in a directory.
    pub(crate) fn start(dir: TempDir, make: impl Fn(&Path) -> Command + 'static) -> Server {
        let child = spawn(make(dir.path()), dir.path());
        Server {
            dir,
            make: Box::new(make),
            child,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Signals the server and all its processes: each of PostgreSQL's has a process group of its own.
    pub(crate) fn signal(&self, signal: Signal) {
        for pid in family(Pid::from_child(&self.child)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills the server and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    pub(crate) fn start_again(&mut self) {
        self.child = spawn((self.make)(self.dir.path()), self.dir.path());
    }
}

/// A process and all that it started.
fn family(pid: Pid) -> Vec<Pid> {
    let number = pid.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{number}/task/{number}/children"));
    let mut all = vec![pid];
    for child in children.unwrap_or_default().split_whitespace() {
        let child = child.parse().ok().and_then(Pid::from_raw);
        all.extend(child.into_iter().flat_map(family));
    }
    all
}

/// Starts a server whose output goes to a file in its directory.
fn spawn(mut command: Command, dir: &Path) -> Child {
    let log = fs::File::create(dir.join("server.log")).unwrap();
    command
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = fs::read_to_string(self.path("server.log")).unwrap_or_default();
            let tail: Vec<&str> = said.lines().rev().take(20).collect();
            for line in tail.iter().rev() {
                eprintln!("server: {line}");
            }
        }
        self.kill();
    }
}
