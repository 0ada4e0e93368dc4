//! The job disk carries the job into the guest and the report out of it.
//!
//! A message is its length, 8 bytes little-endian, and its bytes. The job is at [`JOB_OFFSET`], the report at
//! [`REPORT_OFFSET`]; length zero means no message. Both sides use the same functions: the host on the file,
//! the guest on the block device whose serial is [`SERIAL_JOB`](crate::qemu::SERIAL_JOB).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Offset of the job, in bytes.
pub const JOB_OFFSET: u64 = 0;

/// Offset of the report, in bytes.
pub const REPORT_OFFSET: u64 = 1 << 20;

/// Size of the disk in bytes; it is sparse.
pub const DISK_BYTES: u64 = 4 << 30;

const LENGTH_BYTES: u64 = 8;

/// Creates the disk with a job and without a report.
pub fn create(path: &Path, job: &[u8]) -> io::Result<()> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    file.set_len(DISK_BYTES)?;
    write_message(&file, JOB_OFFSET, job)
}

/// Writes a message and makes it durable. The length is written last, so a torn message counts as none.
/// `InvalidInput` when the message does not fit, else the file's error.
pub fn write_message(file: &File, offset: u64, message: &[u8]) -> io::Result<()> {
    if message.len() as u64 > room(offset) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "message of {} bytes does not fit onto the job disk",
                message.len()
            ),
        ));
    }
    file.write_all_at(message, offset + LENGTH_BYTES)?;
    file.sync_all()?;
    file.write_all_at(&(message.len() as u64).to_le_bytes(), offset)?;
    file.sync_all()
}

/// Reads a message; `None` when there is none. `InvalidData` when the length is impossible, else the file's
/// error.
pub fn read_message(file: &File, offset: u64) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact_at(&mut length, offset)?;
    let length = u64::from_le_bytes(length);
    if length == 0 {
        return Ok(None);
    }
    if length > room(offset) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message on the job disk claims {length} bytes"),
        ));
    }
    let mut message = vec![0; length as usize];
    file.read_exact_at(&mut message, offset + LENGTH_BYTES)?;
    Ok(Some(message))
}

fn room(offset: u64) -> u64 {
    let end = if offset < REPORT_OFFSET {
        REPORT_OFFSET
    } else {
        DISK_BYTES
    };
    end.saturating_sub(offset + LENGTH_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job_disk(job: &[u8]) -> File {
        let file = tempfile::NamedTempFile::new().unwrap();
        create(file.path(), job).unwrap();
        File::options()
            .read(true)
            .write(true)
            .open(file.path())
            .unwrap()
    }

    #[test]
    fn job_and_report_do_not_overwrite_each_other() {
        let file = job_disk(b"job");
        assert_eq!(read_message(&file, REPORT_OFFSET).unwrap(), None);
        write_message(&file, REPORT_OFFSET, b"a report").unwrap();
        assert_eq!(read_message(&file, JOB_OFFSET).unwrap().unwrap(), b"job");
        assert_eq!(
            read_message(&file, REPORT_OFFSET).unwrap().unwrap(),
            b"a report"
        );
    }

    #[test]
    fn a_job_never_reaches_into_the_report() {
        let file = job_disk(b"");
        let limit = (REPORT_OFFSET - LENGTH_BYTES) as usize;
        assert!(write_message(&file, JOB_OFFSET, &vec![1; limit]).is_ok());
        let error = write_message(&file, JOB_OFFSET, &vec![1; limit + 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_length_out_of_range_is_refused() {
        let file = job_disk(b"x");
        file.write_all_at(&u64::MAX.to_le_bytes(), REPORT_OFFSET)
            .unwrap();
        let error = read_message(&file, REPORT_OFFSET).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
