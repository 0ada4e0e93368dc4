//! Block devices, `io.stat`, `io.weight`, `io.bfq.weight`. Units: bytes; weights as the kernel counts them.

use std::fmt;

use super::{lines, number, words};

/// A block device, as `MAJOR:MINOR` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Bytes of one device in `io.stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoBytes {
    /// `rbytes`.
    pub read: Option<u64>,
    /// `wbytes`.
    pub written: Option<u64>,
}

/// `MAJOR:MINOR`.
pub fn device(word: &[u8]) -> Option<Device> {
    let colon = word.iter().position(|&byte| byte == b':')?;
    let part = |digits| number(digits).and_then(|value| u32::try_from(value).ok());
    Some(Device {
        major: part(&word[..colon])?,
        minor: part(&word[colon + 1..])?,
    })
}

/// Parses `io.stat`: calls `each` for every device line. A line without counters (kernels before 5.17 print
/// some) yields none.
pub fn stat(text: &[u8], mut each: impl FnMut(Device, IoBytes)) {
    for line in lines(text) {
        let mut words = words(line);
        let Some(device) = words.next().and_then(device) else {
            continue;
        };
        let mut bytes = IoBytes::default();
        for word in words {
            if let Some(digits) = word.strip_prefix(b"rbytes=") {
                bytes.read = number(digits);
            } else if let Some(digits) = word.strip_prefix(b"wbytes=") {
                bytes.written = number(digits);
            }
        }
        each(device, bytes);
    }
}

/// The default entry of `io.weight` or `io.bfq.weight`: `default 100`, or a bare `100`.
pub fn default_weight(text: &[u8]) -> Option<u32> {
    lines(text).find_map(|line| {
        let mut words = words(line);
        let ((b"default", Some(digits)) | (digits, None)) = (words.next()?, words.next()) else {
            return None;
        };
        u32::try_from(number(digits)?).ok()
    })
}
