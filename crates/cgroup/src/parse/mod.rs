//! Pure parsers of the kernel's text files.
//!
//! They take bytes and return numbers; a field that is missing, not a number, or too large is
//! `None`. They never allocate per line and never panic, whatever the bytes (property-tested
//! here, fuzzed in `fuzz/`).

use justitia_policy::knob::{Kind, Knob, Value};

/// A file of keys and values: a field for each key that Justitia uses, `None` without its line. `$entries` yields
/// keys and values.
macro_rules! keyed_file {
    (
        $(#[$about:meta])*
        pub struct $name:ident of $value:ty, by $parse:ident from $entries:expr;
        $($(#[$doc:meta])* $field:ident = $key:literal,)*
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: Option<$value>,)*
        }

        /// Parses the file.
        pub fn $parse(text: &[u8]) -> $name {
            let mut found = $name::default();
            for (key, value) in $entries(text) {
                match key {
                    $($key => found.$field = Some(value),)*
                    _ => {}
                }
            }
            found
        }
    };
}

pub mod color;
pub mod disk;
pub mod files;
pub mod host;
pub mod io;
pub mod memory;
pub mod mountinfo;
pub mod proc;
pub mod psi;
#[cfg(test)]
mod tests;

/// A decimal number that fills the bytes.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// A file that holds one number and a line end.
pub fn single(text: &[u8]) -> Option<u64> {
    number(text.trim_ascii())
}

/// The value in the text of a knob's file. `None`: the knob holds no value, or the text is in no format that
/// a known kernel writes.
pub fn knob(knob: Knob, text: &[u8]) -> Option<Value> {
    match knob.kind() {
        Kind::Limit => memory::limit(text).map(Value::Limit),
        Kind::Weight { .. } => io::default_weight(text).map(Value::Weight),
        Kind::Switch => single(text).map(|number| Value::Switch(number != 0)),
        Kind::CostQos | Kind::CostModel => knob.value(std::str::from_utf8(text).ok()?.trim()),
        Kind::Reclaim => None,
    }
}

/// The lines of a file, without their ends.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
}

/// The words of a line.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// Keys and values of a flat keyed file of a cgroup.
pub(crate) fn flat(text: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    keyed(text, b' ')
}

/// Keys and values of a file's lines: `key value` in a flat keyed file, `key: value` in `/proc`.
pub(crate) fn keyed(text: &[u8], separator: u8) -> impl Iterator<Item = (&[u8], u64)> {
    lines(text).filter_map(move |line| {
        let end = line.iter().position(|&byte| byte == separator)?;
        Some((&line[..end], number(line[end + 1..].trim_ascii())?))
    })
}

/// Decodes bytes that are written as `escape` and `digits` digits of a radix.
pub fn unescape(text: &[u8], escape: &str, digits: usize, radix: u32) -> String {
    let decoded = |rest: &[u8]| {
        let digits = rest.strip_prefix(escape.as_bytes())?.get(..digits)?;
        let digits = std::str::from_utf8(digits)
            .ok()
            .filter(|all| !all.starts_with('+'))?;
        u8::from_str_radix(digits, radix).ok()
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        let found = decoded(rest);
        bytes.push(found.unwrap_or(byte));
        rest = found.map_or(tail, |_| &rest[escape.len() + digits..]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Hands the same bytes to every parser, for the property tests and the fuzzer.
#[doc(hidden)]
pub fn everything(text: &[u8]) {
    let _ = memory::stat(text).memory();
    let _ = memory::limit(text);
    let _ = memory::events(text);
    let _ = memory::meminfo(text).file();
    let _ = memory::kept_free_pages(text);
    let _ = psi::totals(text);
    io::stat(text, |_, _| {});
    let _ = io::default_weight(text);
    let _ = proc::process_io(text);
    let _ = proc::process_stat(text);
    let _ = proc::unified_group(text);
    proc::pids(text, &mut Vec::new());
    let _ = mountinfo::mounts(text);
    let _ = files::fd_info(text);
    let _ = files::systemd_group(text);
    let _ = single(text);
    let _ = color::declaration(text);
    let _ = host::swaps(text);
    let _ = host::diskstats(text);
    let _ = host::scheduler(text);
    let _ = host::lru_gen(text);
    let _ = host::io_cost(text);
    let _ = host::descendants(text);
    let _ = disk::stat(text);
    let _ = disk::cost(text);
    let _ = disk::udev_model(text);
}
