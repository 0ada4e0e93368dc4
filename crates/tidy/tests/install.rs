//! What `scripts/install` refuses.

use std::path::Path;
use std::process::Command;

#[test]
fn a_prefix_that_the_units_cannot_see_is_refused_before_anything_is_installed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let destination = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hidden");
    for prefix in ["/home/me/.local", "/root", "/usr/../home/me"] {
        let output = Command::new(root.join("scripts/install"))
            .arg(prefix)
            .env("DESTDIR", &destination)
            .output()
            .expect("scripts/install runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{prefix}: {said}");
        assert!(said.contains("another PREFIX"), "{prefix}: {said}");
        assert!(!destination.exists(), "{prefix}");
    }
}
