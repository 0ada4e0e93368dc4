//! Declares false colors on the directories of cgroups.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{setxattr, XattrFlags};

use crate::protocol::databases::Color;
use crate::protocol::Lie;

/// Extended attribute of a cgroup's directory that carries its color.
pub const ATTRIBUTE: &str = "user.justitia.color";

/// Almost the maximum that the kernel accepts for one attribute (`KERNFS_USER_XATTR_SIZE_LIMIT` is 128 KiB
/// for all, `XATTR_SIZE_MAX` 64 KiB for one).
const HUGE_BYTES: usize = 60 << 10;

/// Lies about one group.
#[derive(Debug)]
pub struct Liar {
    group: PathBuf,
    lie: Lie,
    count: u64,
}

impl Liar {
    /// A liar for the cgroup at `group`.
    pub fn new(group: &Path, lie: Lie) -> Self {
        Self {
            group: group.to_owned(),
            lie,
            count: 0,
        }
    }

    /// Makes the declaration of this second.
    pub fn tick(&mut self) -> Result<()> {
        self.count += 1;
        let Some(value) = lied(self.lie, self.count) else {
            return Ok(());
        };
        setxattr(&self.group, ATTRIBUTE, &value, XattrFlags::empty())
            .with_context(|| format!("cannot set {ATTRIBUTE} on {}", self.group.display()))
    }
}

/// The value of the attribute that a liar sets; `None`: it sets none. `count` differs in each declaration,
/// which shows the agent that the declaring program is alive.
fn lied(lie: Lie, count: u64) -> Option<Vec<u8>> {
    let color = match lie {
        Lie::Green => Color::Green,
        Lie::Flap if count % 2 == 0 => Color::Green,
        Lie::Red | Lie::Flap => Color::Red,
        Lie::Garbage => return Some(vec![0xff, 0, count as u8, b'\n', 0x1b]),
        Lie::Huge => return Some(vec![b'R'; HUGE_BYTES]),
        Lie::Silent => return None,
    };
    Some(format!("{} {count} so it says", color.name()).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(lie: Lie, count: u64) -> String {
        let text = String::from_utf8(lied(lie, count).unwrap()).unwrap();
        text.split(' ').next().unwrap().to_owned()
    }

    #[test]
    fn a_lie_is_a_color_that_differs_from_the_one_before_or_none_at_all() {
        assert_eq!(word(Lie::Green, 1), Color::Green.name());
        assert_eq!(word(Lie::Red, 1), Color::Red.name());
        assert_ne!(lied(Lie::Red, 1), lied(Lie::Red, 2));
        assert_ne!(word(Lie::Flap, 1), word(Lie::Flap, 2));
        assert_eq!(lied(Lie::Silent, 1), None);
        assert!(String::from_utf8(lied(Lie::Garbage, 1).unwrap()).is_err());
    }
}
