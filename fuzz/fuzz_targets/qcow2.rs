//! Any bytes as the head of a disk image: nothing panics, whatever is read lies within what the format
//! allows, and a header that was understood is understood the same with more bytes behind it.
#![no_main]

#[allow(dead_code, reason = "how much of a file to read is for who reads files")]
#[path = "../../crates/vm/src/qcow2.rs"]
mod qcow2;

libfuzzer_sys::fuzz_target!(|head: &[u8]| {
    let parsed = qcow2::parse(head);
    let Some(Ok(header)) = &parsed else { return };
    assert!((2..=3).contains(&header.version));
    assert!(header.cluster_bytes.is_power_of_two());
    assert!((512..=2 << 20).contains(&header.cluster_bytes));
    let mut longer = head.to_vec();
    longer.extend_from_slice(b"what comes after the head");
    assert_eq!(qcow2::parse(&longer), parsed);
});
