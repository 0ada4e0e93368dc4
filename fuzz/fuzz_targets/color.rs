//! Any bytes as a declared color: nothing panics, and what is shown of it is short and harmless.
#![no_main]

use justitia_cgroup::parse::color;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Ok(said) = color::declaration(text) else {
        return;
    };
    assert!(text.len() <= color::LONGEST && said.reason.len() <= color::LONGEST);
    assert!(said.reason.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    assert_eq!(color::reason(&said.reason), said.reason);
});
