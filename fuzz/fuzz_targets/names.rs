//! Any glob and any path: nothing panics, and a match is never ruled out from above.
#![no_main]

use justitia_discover::{kind, Glob};

libfuzzer_sys::fuzz_target!(|input: (&str, &str)| {
    let (glob, path) = input;
    let _ = kind::of_path(path);
    let Ok(glob) = Glob::new(glob) else { return };
    if glob.matches(path) {
        let path = path.trim_end_matches('/');
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        assert!(glob.may_match_below(above));
    }
});
