//! Records of container runtimes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use justitia_cgroup::{FakeFs, Fs};
use justitia_discover::{DiscoverConfig, Kind, RuntimeDirs, Scanner};
use justitia_policy::snapshot::WeightSource;
use justitia_policy::units::Weight;
use serde_json::Value;
use tempfile::TempDir;

/// Any bytes as the files of a container's record, separated by `0xff` (which cannot occur in JSON). Nothing
/// panics. A second scan finds nothing new. A user's record changes nothing outside that user's own slice:
/// neither which groups are managed, nor their kind, nor their weight. The first byte chooses the runtime and
/// whether the record is root's or a user's. The groups of the host are those that the record names, and some
/// that none should name.
pub fn oci(bytes: &[u8]) {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    let (first, second) = match bytes.iter().position(|&byte| byte == 0xff) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    let root = tempfile::tempdir().expect("a directory");
    let uid = fs::metadata(root.path()).expect("it is there").uid();
    let own = format!("/user.slice/user-{uid}.slice/");
    let tree = tree(&own, &[first, second]);
    let users = how & 4 != 0;
    let before = look(&tree, RuntimeDirs::none());
    write(&root, &directory_of_the_container(how, uid), first, second);
    let now = look(&tree, RuntimeDirs::under(root.path()));
    let outside = |seen: &[Seen]| -> Vec<Seen> {
        let outside = seen.iter().filter(|(path, ..)| !path.starts_with(&own));
        outside.cloned().collect()
    };
    if users {
        assert_eq!(outside(&now), outside(&before));
    }
}

/// The container's directory, with the files that its runtime keeps there.
fn directory_of_the_container(how: u8, uid: u32) -> (String, [&'static str; 2]) {
    let crun = ["config.json", "status"];
    let runc = ["bundle/config.json", "state.json"];
    let (shelf, files) = match how % 8 {
        0 => ("run/crun".to_owned(), crun),
        1 => ("run/runc".to_owned(), runc),
        2 => (
            "run/containerd/io.containerd.runtime.v2.task/moby".to_owned(),
            crun,
        ),
        3 => (
            "var/lib/containers/storage/overlay-containers".to_owned(),
            ["userdata/config.json", "x"],
        ),
        4 | 6 => (format!("run/user/{uid}/crun"), crun),
        _ => (format!("run/user/{uid}/runc"), runc),
    };
    (format!("{shelf}/{ID}"), files)
}

const ID: &str = "3f1c9a7be2d04c55a8e61b7790cc12f84d5e6a7b8c9d0e1f2a3b4c5d6e7f8091";

fn write(root: &TempDir, (dir, files): &(String, [&str; 2]), first: &[u8], second: &[u8]) {
    let dir = root.path().join(dir);
    for (name, text) in files.iter().zip([first, second]) {
        let file = dir.join(name);
        fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).expect("a directory");
        // runc's state names the bundle, the one written here.
        let bundle = dir.join("bundle").display().to_string();
        let text = replaced(text, b"@BUNDLE@", bundle.as_bytes());
        fs::write(file, text).expect("a file");
    }
}

fn replaced(text: &[u8], what: &[u8], by: &[u8]) -> Vec<u8> {
    match text.windows(what.len()).position(|window| window == what) {
        Some(at) => [&text[..at], by, &text[at + what.len()..]].concat(),
        None => text.to_vec(),
    }
}

type Seen = (String, Kind, Weight, WeightSource);

/// Result of a scan of a host with these groups; a second scan finds nothing new.
fn look(tree: &Arc<FakeFs>, runtime: RuntimeDirs) -> Vec<Seen> {
    let mut scanner =
        Scanner::new(Arc::clone(tree) as Fs, DiscoverConfig::default(), runtime).expect("no globs");
    scanner.rescan().expect("the root is there");
    let again = scanner.rescan().expect("the root is there");
    assert!(!again, "the second scan found a change");
    let seen = scanner.groups().iter();
    seen.map(|group| (group.path.clone(), group.kind, group.weight, group.source))
        .collect()
}

/// Groups of other users, of this user, and all that these texts name.
fn tree(own: &str, texts: &[&[u8]]) -> Arc<FakeFs> {
    let tree = FakeFs::new();
    let mut paths = BTreeSet::from([
        "/system.slice/cron.service".to_owned(),
        "/user.slice/user-4711.slice/session-2.scope".to_owned(),
        format!("/system.slice/docker-{ID}.scope"),
        format!("/machine.slice/libpod-{ID}.scope"),
        format!("{own}user@1.service/user.slice/libpod-{ID}.scope"),
    ]);
    for text in texts {
        if let Ok(value) = serde_json::from_slice(text) {
            named(&value, &mut paths);
        }
    }
    for path in paths {
        tree.mkdir(&path);
    }
    tree
}

/// Adds the cgroups that a record names, by path or as `slice:prefix:name`, up to a limit.
fn named(value: &Value, paths: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let mut fields = text.split(':');
            let path = match (fields.next(), fields.next(), fields.next()) {
                (Some(_), Some(prefix), Some(name)) => {
                    format!("/system.slice/{prefix}-{name}.scope")
                }
                _ => format!("/{}", text.trim_matches('/')),
            };
            let part = |part: &str| !matches!(part, "" | "." | "..") && part.len() < 256;
            if paths.len() < 16 && path.len() < 1024 && path[1..].split('/').all(part) {
                paths.insert(path);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| named(value, paths)),
        Value::Object(values) => values.values().for_each(|value| named(value, paths)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
