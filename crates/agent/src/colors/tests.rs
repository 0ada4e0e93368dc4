//! Declarations that count, their lifetime, and the reasons given for those that do not.

use super::*;
use justitia_cgroup::{CgroupFs, FakeFs};

/// A fake group and what the agent makes of it, second by second.
struct Rig {
    group: Group,
    container: Option<Group>,
    colors: Colors,
    began: Instant,
    buffer: Buffer,
    fake: std::sync::Arc<FakeFs>,
}

impl Rig {
    fn new() -> Rig {
        let fake = FakeFs::new();
        fake.mkdir("/app");
        Rig {
            group: CgroupFs::open(&*fake, "/app").unwrap(),
            container: None,
            colors: Colors::new(TIME_TO_LIVE),
            began: Instant::now(),
            buffer: Buffer::new(),
            fake,
        }
    }

    fn write(&self, text: &str) {
        self.group.set_xattr(xattr::COLOR, text).unwrap();
    }

    fn at(&self, second: u64) -> Instant {
        self.began + Duration::from_secs(second)
    }

    fn look(&mut self, second: u64) -> Option<Declared> {
        let now = self.at(second);
        self.colors
            .look(&self.group, self.container.as_ref(), &mut self.buffer, now)
    }

    fn standing(&mut self, second: u64) -> (Standing, f64) {
        let declared = self.look(second).unwrap();
        (declared.standing, declared.unchanged_s)
    }

    fn speak(&mut self, second: u64, color: Color, time_to_live: Option<Duration>) {
        let spoken = Spoken {
            color,
            reason: "told".into(),
            time_to_live,
        };
        let now = self.at(second);
        self.colors.hear(self.group.id(), Some(spoken), now);
    }
}

#[test]
fn a_group_that_says_nothing_declared_nothing() {
    assert_eq!(Rig::new().look(0), None);
}

#[test]
fn a_value_counts_for_its_time_to_live_since_it_changed() {
    let mut rig = Rig::new();
    rig.write("green 1 p99 3 ms");
    let declared = rig.look(0).unwrap();
    assert_eq!(declared.fresh(), Some(Color::Green));
    assert_eq!(declared.reason, "p99 3 ms");
    assert_eq!(rig.standing(5).0, Standing::Fresh);
    assert_eq!(rig.standing(6), (Standing::Stale, 6.0));
    // The probe lives again, and declares the same.
    rig.write("green 2 p99 3 ms");
    assert_eq!(rig.standing(7), (Standing::Fresh, 0.0));
    assert_eq!(rig.standing(12).0, Standing::Fresh);
    assert_eq!(rig.standing(13).0, Standing::Stale);
}

#[test]
fn a_declaration_that_does_not_count_has_a_reason_and_a_time() {
    let mut rig = Rig::new();
    rig.write("green");
    rig.look(0);
    rig.write("grün");
    assert_eq!(rig.standing(1), (Standing::Malformed, 0.0));
    assert_eq!(rig.standing(4), (Standing::Malformed, 3.0));
    let last = rig.look(4).unwrap();
    assert_eq!((last.color, last.fresh()), (Some(Color::Green), None));
    for length in [256, 4096, 60_000] {
        rig.write(&"x".repeat(length));
        assert_eq!(rig.standing(5).0, Standing::TooLong, "{length}");
    }
    rig.group.remove_xattr(xattr::COLOR).unwrap();
    assert_eq!(rig.standing(7), (Standing::Removed, 0.0));
    assert_eq!(rig.standing(9), (Standing::Removed, 2.0));
    rig.write("red");
    assert_eq!(rig.look(10).unwrap().fresh(), Some(Color::Red));
}

#[test]
fn the_later_of_two_fresh_declarations_wins_and_a_stale_one_gives_way() {
    let mut rig = Rig::new();
    rig.write("green 1");
    rig.look(0);
    rig.speak(1, Color::Red, Some(Duration::from_secs(2)));
    let declared = rig.look(1).unwrap();
    assert_eq!(declared.fresh(), Some(Color::Red));
    assert_eq!(declared.channel, Channel::Socket);
    rig.write("green 2");
    assert_eq!(rig.look(2).unwrap().channel, Channel::Xattr);
    rig.speak(3, Color::Yellow, Some(Duration::from_secs(1)));
    assert_eq!(rig.look(4).unwrap().fresh(), Some(Color::Yellow));
    assert_eq!(rig.look(5).unwrap().fresh(), Some(Color::Green));
    let now = rig.at(6);
    rig.colors.hear(rig.group.id(), None, now);
    rig.write("green 3");
    assert_eq!(rig.look(6).unwrap().fresh(), Some(Color::Green));
}

#[test]
fn groups_that_are_gone_are_forgotten() {
    let mut rig = Rig::new();
    rig.write("green");
    rig.look(0);
    rig.colors.retain(|_| false);
    assert!(rig.colors.groups.is_empty());
}

#[test]
fn a_read_that_failed_renews_nothing() {
    let mut rig = Rig::new();
    rig.write("green");
    rig.look(0);
    let (id, now) = (rig.group.id(), rig.at(3));
    rig.colors.replace(id, Standing::Unreadable, &[], now);
    let declared = rig.colors.declared(id, now).unwrap();
    assert_eq!(
        (declared.standing, declared.unchanged_s),
        (Standing::Unreadable, 3.0)
    );
    assert_eq!(rig.standing(4), (Standing::Fresh, 4.0));
    assert_eq!(rig.standing(6).0, Standing::Stale);
}

#[test]
fn a_group_without_a_color_has_that_of_the_container_below_it() {
    let mut rig = Rig::new();
    rig.fake.mkdir("/app/container");
    let container = CgroupFs::open(&*rig.fake, "/app/container").unwrap();
    container.set_xattr(xattr::COLOR, "green 1 inside").unwrap();
    assert_eq!(rig.look(0), None);
    rig.container = Some(container);
    let declared = rig.look(1).unwrap();
    assert_eq!(
        (declared.fresh(), &*declared.reason),
        (Some(Color::Green), "inside")
    );
    rig.write("red 1 outside");
    assert_eq!(rig.look(2).unwrap().fresh(), Some(Color::Red));
}
