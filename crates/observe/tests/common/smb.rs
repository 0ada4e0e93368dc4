//! A share that the kernel's own SMB server (ksmbd, with Debian's ksmbd-tools) serves over the loopback interface, and
//! its mount.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{mount, unmount, MountFlags, UnmountFlags};
use rustix::process::{kill_process, Pid, Signal};

/// Time for the server to start.
const START: Duration = Duration::from_secs(60);

/// The mounted share.
pub(crate) struct Smb {
    dir: tempfile::TempDir,
    server: Child,
}

impl Smb {
    pub(crate) fn mount() -> Smb {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for made in ["served", "mounted"] {
            fs::create_dir(at(made)).unwrap();
        }
        let share = format!(
            "[global]\nnetbios name = TEST\n[share]\npath = {}\nread only = no\n",
            at("served").display()
        );
        fs::write(at("conf"), share).unwrap();
        let run = |program: &str, arguments: [&OsStr; 5]| {
            let command = Command::new(program).args(arguments).spawn();
            command.unwrap_or_else(|error| panic!("{program}: {error}"))
        };
        let (conf, users) = (at("conf"), at("users"));
        let user = [
            "--add=root".as_ref(),
            "-p".as_ref(),
            "secret".as_ref(),
            "-i".as_ref(),
            users.as_ref(),
        ];
        let added = run("ksmbd.adduser", user).wait().unwrap();
        assert!(added.success(), "{added}");
        let serve = [
            "-n".as_ref(),
            "-c".as_ref(),
            conf.as_ref(),
            "-u".as_ref(),
            users.as_ref(),
        ];
        let server = run("ksmbd.mountd", serve);
        let smb = Smb { dir, server };
        // A loose client caches whatever the server grants it. Version 2.1 needs no ciphers, which the kernel would load.
        let options = b"ip=127.0.0.1,unc=\\\\127.0.0.1\\share,username=root,password=secret,vers=2.1,cache=loose\0";
        let options = CStr::from_bytes_with_nul(options).unwrap();
        let target = smb.dir.path().join("mounted");
        let begun = Instant::now();
        // The server listens before it knows its share.
        while let Err(error) = mount(
            "//127.0.0.1/share",
            &target,
            "cifs",
            MountFlags::empty(),
            options,
        ) {
            assert!(begun.elapsed() < START, "{error}");
            thread::sleep(Duration::from_millis(500));
        }
        smb
    }

    /// A file in it.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("mounted/file")
    }
}

impl Drop for Smb {
    fn drop(&mut self) {
        let _ = unmount(self.dir.path().join("mounted"), UnmountFlags::DETACH);
        let _ = fs::write("/sys/class/ksmbd-control/kill_server", "hard");
        // The server ends its worker only if it is asked to end.
        let _ = kill_process(Pid::from_child(&self.server), Signal::TERM);
        let _ = self.server.wait();
    }
}
