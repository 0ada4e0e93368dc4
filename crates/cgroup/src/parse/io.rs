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

/// Parses `io.stat`: calls `each` for every device. A device without counters yields none. Linux 5.15 to 5.18
/// print such a device without a line end: the counters of a line belong to the last device before them.
pub fn stat(text: &[u8], mut each: impl FnMut(Device, IoBytes)) {
    for line in lines(text) {
        let mut last = None;
        for word in words(line) {
            if let Some(next) = device(word) {
                if let Some((device, bytes)) = last.replace((next, IoBytes::default())) {
                    each(device, bytes);
                }
            } else if let Some((_, bytes)) = &mut last {
                if let Some(digits) = word.strip_prefix(b"rbytes=") {
                    bytes.read = number(digits);
                } else if let Some(digits) = word.strip_prefix(b"wbytes=") {
                    bytes.written = number(digits);
                }
            }
        }
        if let Some((device, bytes)) = last {
            each(device, bytes);
        }
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
