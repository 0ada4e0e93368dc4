//! Fuzz targets: functions over bytes that panic when a property does not hold.
//!
//! ```text
//! fuzz_targets/NAME.rs (libFuzzer, nightly) ─┐
//!                                            ├─▶ NAME(bytes) here ─▶ the crates' own functions
//! tests/corpus.rs (any compiler) ────────────┘
//! ```
//!
//! Both run over `corpus/NAME`; `README.md` lists the targets and says how to run them.
//!
//! Private parts of a crate are reached through a few `#[doc(hidden)] pub` functions. A cargo feature instead
//! would compile the crate and all its dependents once more for the harness, and `cargo test --workspace`
//! would test with the feature what is shipped without it.

mod http;
mod journal;
mod nri;
mod oci;
mod record;
mod secret;
mod socket;

pub use http::http;
pub use journal::journal;
pub use nri::nri;
pub use oci::oci;
pub use record::record;
pub use secret::secret;
pub use socket::socket;

use justitia_cgroup::parse as kernel;
use justitia_discover::{kind, Glob};
use justitia_vm::qcow2::{self as image, Header};

/// Panics if a property does not hold for these bytes.
pub type Target = fn(&[u8]);

/// Every target, by the name of its program and of its corpus.
pub const TARGETS: [(&str, Target); 11] = [
    ("parse", parse),
    ("color", color),
    ("names", names),
    ("record", record),
    ("qcow2", qcow2),
    ("oci", oci),
    ("nri", nri),
    ("journal", journal),
    ("http", http),
    ("socket", socket),
    ("secret", secret),
];

/// Any bytes, every parser of kernel files. Nothing panics.
pub fn parse(text: &[u8]) {
    kernel::everything(text);
}

/// Any bytes as a declared color. Nothing panics, and the text shown is short and harmless.
pub fn color(text: &[u8]) {
    let Ok(said) = kernel::color::declaration(text) else {
        return;
    };
    assert!(text.len() <= kernel::color::LONGEST && said.reason.len() <= kernel::color::LONGEST);
    assert!(said
        .reason
        .bytes()
        .all(|byte| (b' '..=b'~').contains(&byte)));
    assert_eq!(kernel::color::reason(&said.reason), said.reason);
}

/// A line with a glob, then a path. Nothing panics, and if a path matches, its parent is not pruned.
pub fn names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Some((glob, path)) = text.split_once('\n') else {
        return;
    };
    let _ = kind::of_path(path);
    let Ok(glob) = Glob::new(glob) else { return };
    if glob.matches(path) {
        let path = path.trim_end_matches('/');
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        assert!(glob.may_match_below(above));
    }
}

/// Any bytes as the head of a disk image. Nothing panics, parsed values are within the format's limits, and
/// more bytes after a parsed header do not change the result.
pub fn qcow2(head: &[u8]) {
    let parsed = image::parse(head);
    let Some(Ok(Header {
        version,
        cluster_bytes,
        ..
    })) = &parsed
    else {
        return;
    };
    assert!((2..=3).contains(version));
    assert!(cluster_bytes.is_power_of_two() && (512..=2 << 20).contains(cluster_bytes));
    let mut longer = head.to_vec();
    longer.extend_from_slice(b"what comes after the head");
    assert_eq!(image::parse(&longer), parsed);
}
