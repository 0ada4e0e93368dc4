//! Pressure files: `memory.pressure`, `io.pressure`, `/proc/pressure/*`. Totals are microseconds since the
//! group was made. The averages are not parsed.

use justitia_policy::snapshot::Pressure;

use super::{lines, number, words};

/// Stall totals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Some task waited.
    pub some_us: Option<u64>,
    /// All tasks waited.
    pub full_us: Option<u64>,
}

/// Parses a pressure file.
pub fn totals(text: &[u8]) -> Totals {
    let mut totals = Totals::default();
    for line in lines(text) {
        let mut words = words(line);
        let field = match words.next() {
            Some(b"some") => &mut totals.some_us,
            Some(b"full") => &mut totals.full_us,
            _ => continue,
        };
        *field = words
            .find_map(|word| word.strip_prefix(b"total="))
            .and_then(number);
    }
    totals
}

/// The pressure on memory and I/O.
pub(crate) fn pressure(memory: Totals, io: Totals) -> Pressure {
    Pressure {
        memory_some_us: memory.some_us,
        memory_full_us: memory.full_us,
        io_some_us: io.some_us,
        io_full_us: io.full_us,
        cpu_some_us: None,
    }
}
