//! Saved whole or not at all; refused with a reason.

use super::*;
use crate::journal::{Fault, FAULT};

const BOOT: &str = "boot-1";
const NOW: Duration = Duration::from_secs(500);

fn save(dir: &Path, at: Duration) -> Result<()> {
    Handover {
        mode: Mode::Proportional,
        at,
        state: &State::default(),
        owners: Owners::default(),
        reservations: Vec::new(),
        gate_asked: Some(true),
    }
    .save(dir, BOOT)
}

fn read(dir: &Path, boot: &str, mode: Mode) -> std::result::Result<Option<Duration>, String> {
    Handover::read(dir, boot, NOW, mode).map(|left| left.map(|left| left.at))
}

#[test]
fn when_any_call_fails_the_state_saved_before_is_still_whole() {
    let earlier = Duration::from_secs(491);
    let mut failed = 0;
    for at in 0..6 {
        for earlier in [None, Some(earlier)] {
            let dir = tempfile::tempdir().unwrap();
            if let Some(earlier) = earlier {
                save(dir.path(), earlier).unwrap();
            }
            FAULT.set(Some(Fault { at, lasting: true }));
            let saved = save(dir.path(), NOW);
            FAULT.set(None);
            failed += usize::from(saved.is_err());
            let expected = saved.map_or(earlier, |()| Some(NOW));
            assert_eq!(
                read(dir.path(), BOOT, Mode::Proportional),
                Ok(expected),
                "{at}"
            );
        }
    }
    assert_eq!(failed, 8, "four calls can fail");
}

#[test]
fn a_state_that_cannot_be_used_is_refused_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let reason = |boot, mode| read(dir.path(), boot, mode).unwrap_err();
    assert_eq!(read(dir.path(), BOOT, Mode::Proportional), Ok(None));
    save(dir.path(), NOW).unwrap();
    assert!(reason("boot-2", Mode::Proportional).contains("to another boot"));
    assert!(reason(BOOT, Mode::Observe).contains("another mode"));
    save(dir.path(), Duration::from_secs(378)).unwrap();
    assert!(reason(BOOT, Mode::Proportional).contains("122 s old"));
    fs::write(file(dir.path()), "0 torn").unwrap();
    assert!(reason(BOOT, Mode::Proportional).contains("is damaged"));
}
