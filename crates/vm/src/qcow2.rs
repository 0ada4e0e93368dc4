//! Parses the head of a qcow2 image: the size of the disk in it, and its backing file.
//!
//! Source: QEMU's `docs/interop/qcow2.txt`. All numbers are big-endian. The rest of the format is not needed:
//! pages are counted by their offset in the file, whatever they contain.

/// Bytes to pass to [`parse`]: the header, and the name of the backing file, which has to lie within the
/// first cluster.
pub const HEAD: usize = 64 << 10;

const MAGIC: &[u8; 4] = b"QFI\xfb";
/// The specification's limit for a backing file's name, in bytes.
const LONGEST_NAME: usize = 1023;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// Size of the virtual disk.
    pub disk_bytes: u64,
    pub cluster_bytes: u64,
    /// The backing file as the header names it: a path relative to the image's directory, an absolute path,
    /// or a description (`json:`, `nbd:`).
    pub backing: Option<String>,
}

impl Header {
    /// Bytes that a file of this size may grow to: its disk and its tables, but at most four times its size, or 1 GiB
    /// if that is more. The header may be damaged, or written by the guest of a raw image.
    pub fn grown(&self, file_bytes: u64) -> u64 {
        // Tables: 8 bytes of L2 and 2 of refcounts for each cluster, and the header.
        let clusters = self.disk_bytes.div_ceil(self.cluster_bytes);
        let tables = clusters.saturating_mul(10) + 4 * self.cluster_bytes;
        let most = file_bytes.saturating_mul(4).max(1 << 30);
        self.disk_bytes.saturating_add(tables).min(most)
    }
}

/// The defect of a file that has qcow2's magic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// The bytes end within the header or the backing file's name.
    Short,
    /// A field has a value that the format does not allow.
    Field,
}

/// Parses the first bytes of a file. `None`: no qcow2 image; `Some(Err(_))`: a damaged one.
pub fn parse(head: &[u8]) -> Option<Result<Header, Damage>> {
    head.starts_with(MAGIC).then(|| header(head))
}

fn header(head: &[u8]) -> Result<Header, Damage> {
    let bytes = |at: usize, count: usize| {
        at.checked_add(count)
            .and_then(|end| head.get(at..end))
            .ok_or(Damage::Short)
    };
    let number = |at, count| {
        let bytes = bytes(at, count)?.iter();
        Ok(bytes.fold(0u64, |value, &byte| value << 8 | u64::from(byte)))
    };
    let version = number(4, 4)?;
    if !(2..=3).contains(&version) {
        return Err(Damage::Field);
    }
    let cluster_bits = number(20, 4)?;
    if !(9..=21).contains(&cluster_bits) {
        return Err(Damage::Field);
    }
    let (offset, length) = (number(8, 8)?, number(16, 4)?);
    let backing = if offset == 0 || length == 0 {
        None
    } else if length > LONGEST_NAME as u64 {
        return Err(Damage::Field);
    } else {
        let at = usize::try_from(offset).map_err(|_| Damage::Field)?;
        Some(String::from_utf8_lossy(bytes(at, length as usize)?).into_owned())
    };
    Ok(Header {
        version: version as u32,
        disk_bytes: number(24, 8)?,
        cluster_bytes: 1 << cluster_bits,
        backing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn image(version: u32, bits: u32, disk: u64, backing: &str) -> Vec<u8> {
        let mut head = Vec::new();
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&version.to_be_bytes());
        let offset: u64 = if backing.is_empty() { 0 } else { 120 };
        head.extend_from_slice(&offset.to_be_bytes());
        head.extend_from_slice(&(backing.len() as u32).to_be_bytes());
        head.extend_from_slice(&bits.to_be_bytes());
        head.extend_from_slice(&disk.to_be_bytes());
        head.resize(120, 0);
        head.extend_from_slice(backing.as_bytes());
        head
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(
            version in 2u32..4, bits in 9u32..22, disk: u64, backing in "[a-z/.]{0,1023}"
        ) {
            let header = parse(&image(version, bits, disk, &backing)).unwrap().unwrap();
            prop_assert_eq!(header.version, version);
            prop_assert_eq!(header.cluster_bytes, 1u64 << bits);
            prop_assert_eq!(header.disk_bytes, disk);
            prop_assert_eq!(header.backing.unwrap_or_default(), backing);
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            for (byte, magic) in bytes.iter_mut().zip(MAGIC) {
                *byte = *magic;
            }
            let _ = parse(&bytes);
        }

        #[test]
        fn a_header_that_is_cut_off_is_damaged(length in 4usize..130) {
            let whole = image(3, 16, 1 << 30, "base.qcow2");
            prop_assert!(parse(&whole[..length.min(whole.len() - 1)]).unwrap().is_err());
        }
    }

    #[test]
    fn a_header_cannot_make_a_small_file_count_as_a_huge_one() {
        let grown = |disk, file| parse(&image(3, 16, disk, "")).unwrap().unwrap().grown(file);
        assert_eq!(grown(u64::MAX, 64 << 10), 1 << 30);
        assert_eq!(grown(1 << 46, 1 << 40), 1 << 42);
        let honest = grown(1 << 30, 1 << 29);
        assert!(
            (1 << 30..(1 << 30) + (2 << 20)).contains(&honest),
            "{honest}"
        );
    }

    #[test]
    fn other_files_are_no_qcow2_and_bad_fields_are_damage() {
        assert_eq!(parse(b"raw disk"), None);
        assert_eq!(parse(b""), None);
        let long = "x".repeat(1024);
        for bad in [
            image(9, 16, 0, ""),
            image(3, 40, 0, ""),
            image(3, 16, 0, &long),
        ] {
            assert_eq!(parse(&bad), Some(Err(Damage::Field)));
        }
    }
}
