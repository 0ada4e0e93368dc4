//! On a real kernel, only the owner of a cgroup's directory may declare its color.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use justitia_agent::observe::Observer;
use justitia_cgroup::{xattr, Mount, RealFs};
use justitia_discover::{DiscoverConfig, RuntimeDirs};
use justitia_policy::color::{Declared, Standing};
use justitia_policy::Color;
use rustix::fs::{chown, Gid, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// An ordinary user.
const USER: u32 = 4711;

/// Cgroups of this test, gone when it ends.
struct Scratch {
    name: String,
    dir: PathBuf,
}

impl Scratch {
    fn new() -> Scratch {
        let name = format!("/justitia-color-{}", std::process::id());
        let mount = std::env::var("JUSTITIA_TEST_CGROUP2");
        let mount = mount.unwrap_or_else(|_| "/sys/fs/cgroup".into());
        let dir = PathBuf::from(format!("{mount}{name}"));
        for below in ["", "own", "own/child", "other"] {
            fs::create_dir(dir.join(below)).unwrap();
        }
        for below in ["own", "own/child"] {
            let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
            chown(dir.join(below), Some(user), Some(group)).unwrap();
        }
        Scratch { name, dir }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for below in ["own/child", "own", "other", ""] {
            let _ = fs::remove_dir(self.dir.join(below));
        }
    }
}

/// Sets the attribute as an ordinary user: credentials are a thread's.
fn set_as_user(dir: &Path, value: &[u8]) -> Result<(), Errno> {
    let path = CString::new(dir.to_str().unwrap()).unwrap();
    let value = value.to_vec();
    let user = thread::spawn(move || {
        let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
        rustix::fs::setxattr(path, xattr::COLOR, &value, XattrFlags::empty())
    });
    user.join().unwrap()
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn the_owner_of_a_delegated_cgroup_declares_its_own_color_and_nobody_elses() {
    let scratch = Scratch::new();
    let real = RealFs::new(&Mount::detect().unwrap()).unwrap();
    let config = DiscoverConfig::managing(&[&format!("{}/*", scratch.name)]);
    let mut observer = Observer::new(Arc::new(real), config, RuntimeDirs::none()).unwrap();
    let mut declared = |name: &str| -> Option<Declared> {
        let snapshot = observer.observe().snapshot;
        let mut groups = snapshot.groups.into_iter();
        let group = groups.find(|group| group.path.ends_with(name));
        group.expect("it is managed").declared
    };
    let own = scratch.dir.join("own");
    assert_eq!(declared("/own"), None);

    set_as_user(&own, b"GREEN 17 p99 3 ms").unwrap();
    let said = declared("/own").unwrap();
    assert_eq!(said.fresh(), Some(Color::Green));
    assert_eq!(said.reason, "p99 3 ms");
    set_as_user(&own.join("child"), b"red").unwrap();

    for foreign in [scratch.dir.join("other"), scratch.dir.clone()] {
        let refused = set_as_user(&foreign, b"green").unwrap_err();
        assert!(
            matches!(refused, Errno::ACCESS | Errno::PERM),
            "{refused:?}"
        );
    }
    assert_eq!(declared("/other"), None);

    let long = vec![b'x'; 60_000];
    for (value, standing) in [
        (&b"\xff\x00garbage"[..], Standing::Malformed),
        (&long[..], Standing::TooLong),
        (&long[..300], Standing::TooLong),
    ] {
        set_as_user(&own, value).unwrap();
        let said = declared("/own").unwrap();
        assert_eq!((said.standing, said.fresh()), (standing, None));
    }
    // The kernel takes no more than 64 KiB.
    let refused = set_as_user(&own, &vec![b'x'; 1 << 20]).unwrap_err();
    assert!(
        matches!(refused, Errno::TOOBIG | Errno::RANGE | Errno::NOSPC),
        "{refused:?}"
    );
    set_as_user(&own, b"yellow").unwrap();
    assert_eq!(declared("/own").unwrap().fresh(), Some(Color::Yellow));
    assert_eq!(declared("/other"), None);
}
