//! The fileserver load for a part of the measured phase: it comes late, leaves early, or both.
//!
//! Its files exist and its container waits before it comes. When it leaves, its process ends and the
//! container's cgroup stays, empty. Times in seconds after the common start.

use std::thread;
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::clock::{after, rest_until};
use super::fileserver::Fileserver;
use super::shared::{Command, Page};
use super::{Place, Workload};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stay {
    pub load: Fileserver,
    pub from_s: u32,
    /// `None`: until the end.
    pub until_s: Option<u32>,
}

impl Workload for Stay {
    fn prepare(&self, place: &Place) -> Result<()> {
        self.load.prepare(place)
    }

    fn run(&self, place: &Place, page: &Page) -> Result<()> {
        let start = Instant::now();
        if !rest_until(after(start, self.from_s), || page.stopped()) {
            return Ok(());
        }
        thread::scope(|scope| {
            if let Some(until_s) = self.until_s {
                scope.spawn(move || {
                    rest_until(after(start, until_s), || page.stopped());
                    page.set_command(Command::Stop);
                });
            }
            let result = self.load.run(place, page);
            // Ends the thread above if the load failed.
            page.set_command(Command::Stop);
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::clock::monotonic_ns;
    use crate::load::fileserver::Mix;
    use crate::load::shared::Mapping;

    #[test]
    fn nothing_moves_before_a_load_comes_and_after_it_left() {
        let dir = tempfile::tempdir().unwrap();
        let page = Mapping::create(&dir.path().join("page")).unwrap();
        let place = crate::load::in_dir(dir.path(), 1);
        let stay = Stay {
            load: Fileserver {
                mix: Mix {
                    files: 60,
                    mean_file_bytes: 8192,
                    ..Mix::default()
                },
                ..Fileserver::default()
            },
            from_s: 1,
            until_s: Some(2),
        };
        stay.prepare(&place).unwrap();
        page.go(monotonic_ns());
        thread::scope(|scope| {
            let run = scope.spawn(|| stay.run(&place, &page));
            thread::sleep(Duration::from_millis(500));
            assert_eq!(page.counters().ops, 0);
            run.join().unwrap().unwrap();
        });
        assert!(page.counters().ops > 0);
        assert!(page.stopped() && !stay.ends_by_itself());
    }
}
