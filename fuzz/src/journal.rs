//! The agent's journal.

use justitia_agent::journal::{push_line, rewritten};

const BOOT: &str = "1e5d3c7a-2f7e-4a63-9c7b-3b1f0a9d8e11";

/// Any bytes as a journal. Nothing panics. The rewritten journal is undamaged, says the same (rewriting it
/// again changes nothing), and is at most a header longer than the input. A journal that is torn anywhere has
/// no more damaged lines than the whole one. The first byte chooses between the bytes as they are, and each
/// line with its checksum, below a header of this boot (a checksum is not found by chance).
pub fn journal(bytes: &[u8]) {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    let text = if how & 1 == 0 {
        bytes.to_vec()
    } else {
        let mut text = String::new();
        push_line(&mut text, &format!("justitia-journal 1 {BOOT}"));
        for line in String::from_utf8_lossy(bytes).lines() {
            push_line(&mut text, line);
        }
        text.into_bytes()
    };
    let Ok((anew, damaged)) = rewritten(&text, BOOT) else {
        return;
    };
    let lines = text.split_inclusive(|&byte| byte == b'\n');
    assert!(damaged <= lines.count());
    assert_eq!(
        rewritten(anew.as_bytes(), BOOT).ok(),
        Some((anew.clone(), 0))
    );
    // A number may be written shorter than it was read, never longer. The header is always written.
    assert!(
        anew.len() <= text.len() + HEADER,
        "{} of {}",
        anew.len(),
        text.len()
    );
    for end in cuts(text.len()) {
        let (_, torn) = rewritten(&text[..end], BOOT).unwrap_or_default();
        assert!(
            torn <= damaged,
            "{torn} damaged lines at {end} of {damaged}"
        );
    }
}

/// Bytes of a header: a checksum, the format's name and version, the boot.
const HEADER: usize = 16 + 1 + "justitia-journal 1 ".len() + BOOT.len() + 1;

/// Offsets at which to tear a text of this length: all, or some twenty of a long text.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    (0..length).step_by(1 + length / 20)
}
