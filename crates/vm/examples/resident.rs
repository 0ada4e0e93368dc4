//! Prints the cached pages of a file or block device as runs `FROM TO`: `resident PATH [BYTES]`. The lab runs
//! it in a guest and compares with the host.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};

use justitia_vm::Sight;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else {
        return Err(std::io::Error::other("say which file"));
    };
    let mut file = File::open(path)?;
    let end = file.seek(SeekFrom::End(0))?;
    let bytes = arguments.next().and_then(|bytes| bytes.parse().ok());
    let mut out = std::io::stdout().lock();
    for (from, to) in Sight::runs(&file, bytes.unwrap_or(end).min(end))? {
        writeln!(out, "{from} {to}")?;
    }
    Ok(())
}
