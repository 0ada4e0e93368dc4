//! Declares a color in the attribute `user.justitia.color` of a cgroup's directory.
//!
//! The value is `COLOR N REASON`, printable ASCII, at most 255 bytes. N counts up with each declaration, so
//! that a reader sees that the probe is alive: a value that stays the same goes stale.

use justitia_cgroup::{xattr, Group, Why};
use justitia_policy::color::Color;

use justitia_report::error::{Error, Exit};

/// Longest value, bytes.
pub const MAX_BYTES: usize = 255;

pub trait Sink {
    /// Declares a value made by [`value`].
    fn declare(&mut self, value: &str) -> Result<(), Error>;

    /// Withdraws what was declared, if it is still ours.
    fn withdraw(&mut self) {}
}

/// The text of a declaration.
pub fn value(color: Color, count: u64, reason: &str) -> String {
    let mut text = format!("{color} {count} ");
    text.extend(reason.chars().map(|char| match char {
        ' '..='~' => char,
        _ => '?',
    }));
    text.truncate(MAX_BYTES);
    text.truncate(text.trim_end().len());
    text
}

/// Finds the group again, for a group that was removed and made again under its name.
pub type Find = Box<dyn Fn() -> Result<Group, Error>>;

pub struct XattrSink {
    find: Find,
    group: Option<Group>,
    last: Option<String>,
}

impl XattrSink {
    /// A sink for the group that `find` finds, now and whenever the group found before is gone.
    pub fn new(find: Find) -> Result<XattrSink, Error> {
        let group = find()?;
        Ok(XattrSink {
            find,
            group: Some(group),
            last: None,
        })
    }
}

impl Sink for XattrSink {
    fn declare(&mut self, value: &str) -> Result<(), Error> {
        let group = match self.group.take() {
            Some(group) if group.exists() => group,
            _ => (self.find)()?,
        };
        let set = group.set_xattr(xattr::COLOR, value);
        set.map_err(|error| denied(&error))?;
        self.group = Some(group);
        self.last = Some(value.to_owned());
        Ok(())
    }

    fn withdraw(&mut self) {
        let (Some(group), Some(last)) = (&self.group, self.last.take()) else {
            return;
        };
        // A value that somebody else declared since is theirs. A group that is gone needs nothing.
        if matches!(group.xattr(xattr::COLOR), Ok(Some(now)) if now == last) {
            let _ = group.remove_xattr(xattr::COLOR);
        }
    }
}

/// The kernel's refusal, with a remedy for a container.
fn denied(error: &justitia_cgroup::Error) -> Error {
    let remedy = match error.why {
        Why::Denied(rustix::io::Errno::ROFS) => {
            "mount the container's cgroup writable, or run the probe on the host with --group"
        }
        Why::Denied(_) => {
            "have the cgroup delegated to this user (systemd: Delegate=yes), or run the probe on \
             the host as root with --group"
        }
        Why::Unsupported(_) => "attributes on cgroups need Linux 5.7; --dry-run only prints",
        Why::Gone => "start the container again, or name another --group",
        _ => error.remedy(),
    };
    let exit = match error.why {
        Why::Denied(_) | Why::Unsupported(_) => Exit::Environment,
        _ => Exit::Failed,
    };
    Error::new(exit, format!("cannot declare a color: {error}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use justitia_cgroup::{FakeFs, Fs};
    use proptest::prelude::*;

    fn color_of(fs: &Fs, path: &str) -> Option<String> {
        fs.open(path).unwrap().xattr(xattr::COLOR).unwrap()
    }

    fn sink(fs: &Fs) -> XattrSink {
        let fs = fs.clone();
        XattrSink::new(Box::new(move || {
            fs.open("/db")
                .map_err(|error| Error::failed(&error, error.remedy()))
        }))
        .unwrap()
    }

    #[test]
    fn a_declared_color_is_the_groups_attribute() {
        let fake = FakeFs::new();
        fake.mkdir("/db");
        let fs: Fs = fake;
        let mut sink = sink(&fs);
        sink.declare(&value(Color::Yellow, 7, "2 waiting")).unwrap();
        assert_eq!(color_of(&fs, "/db").as_deref(), Some("yellow 7 2 waiting"));
        sink.withdraw();
        assert_eq!(color_of(&fs, "/db"), None);
    }

    #[test]
    fn a_later_declaration_by_another_is_not_withdrawn() {
        let fake = FakeFs::new();
        fake.mkdir("/db");
        let fs: Fs = fake;
        let mut sink = sink(&fs);
        sink.declare("green 1 ours").unwrap();
        let group = fs.open("/db").unwrap();
        group.set_xattr(xattr::COLOR, "red 1 theirs").unwrap();
        sink.withdraw();
        assert_eq!(color_of(&fs, "/db").as_deref(), Some("red 1 theirs"));
    }

    #[test]
    fn a_group_made_again_is_found_again() {
        let fake = FakeFs::new();
        fake.mkdir("/db");
        let fs: Fs = fake.clone();
        let mut sink = sink(&fs);
        sink.declare("green 1 x").unwrap();
        fake.rmdir("/db");
        assert!(sink.declare("green 2 x").is_err());
        fake.mkdir("/db");
        sink.declare("green 3 x").unwrap();
        assert_eq!(color_of(&fs, "/db").as_deref(), Some("green 3 x"));
        fake.rmdir("/db");
        fake.mkdir("/db");
        sink.declare("green 4 x").unwrap();
        assert_eq!(color_of(&fs, "/db").as_deref(), Some("green 4 x"));
    }

    #[test]
    fn a_read_only_mount_and_a_missing_right_have_their_own_remedies() {
        for (errno, word) in [
            (rustix::io::Errno::ROFS, "writable"),
            (rustix::io::Errno::ACCESS, "Delegate=yes"),
            (rustix::io::Errno::OPNOTSUPP, "5.7"),
        ] {
            let error = justitia_cgroup::Error::from_errno("/", "extended attributes", errno);
            let error = denied(&error);
            assert!(error.remedy.contains(word), "{error:?}");
            assert_eq!(error.exit, Exit::Environment);
        }
    }

    proptest! {
        #[test]
        fn a_value_is_short_printable_and_begins_with_its_color(reason in "\\PC{0,400}", count: u64) {
            let text = value(Color::Red, count, &reason);
            prop_assert!(text.len() <= MAX_BYTES);
            prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            let mut words = text.split(' ');
            prop_assert_eq!(words.next(), Some("red"));
            prop_assert_eq!(words.next().and_then(|word| word.parse().ok()), Some(count));
        }
    }
}
