//! Lines of the journal: their text, their checksum, and values as the kernel keeps them.

use std::fmt::Write as _;

use justitia_policy::plan::Value;
use justitia_policy::units::{Bytes, Limit};

/// True if two values are the same to the kernel, which keeps memory limits in whole pages and treats limits
/// beyond its counters as `max`.
pub(crate) fn same(a: Value, b: Value) -> bool {
    rounded(a) == rounded(b)
}

/// The value as the kernel keeps it.
pub(crate) fn rounded(value: Value) -> Value {
    let page = rustix::param::page_size() as u64;
    match value {
        Value::Limit(Limit::Bytes(Bytes(bytes))) if bytes / page >= i64::MAX as u64 / page => {
            Value::Limit(Limit::Max)
        }
        Value::Limit(Limit::Bytes(Bytes(bytes))) => {
            Value::Limit(Limit::Bytes(Bytes(bytes / page * page)))
        }
        other => other,
    }
}

/// Appends a line with its checksum.
pub fn push_line(text: &mut String, line: &str) {
    let _ = writeln!(text, "{:016x} {line}", checksum(line));
}

/// FNV-1a: against torn and damaged lines, not against an adversary.
fn checksum(line: &str) -> u64 {
    line.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The record of a whole line with a correct checksum.
pub(crate) fn checked(line: &str) -> Option<&str> {
    let (sum, record) = line.strip_suffix('\n')?.split_once(' ')?;
    (u64::from_str_radix(sum, 16).ok()? == checksum(record)).then_some(record)
}
