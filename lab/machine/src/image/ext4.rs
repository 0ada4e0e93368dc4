//! Creates file systems from directory trees, without mounting and without privileges.
//!
//! `mke2fs -d` copies a tree; ownership comes from running as root or under fakeroot. The root image has a
//! partition table, because the kernel can look for a partition by its identity ([`ROOT_PARTUUID`]); a bare
//! NVMe disk has only a number, which depends on probing order.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::error::{OrCannot, Result};
use crate::tools;

/// `root=PARTUUID=` of the root image: its disk signature and partition number.
pub const ROOT_PARTUUID: &str = "4a555354-01";
const ROOT_SIGNATURE: u32 = 0x4a55_5354;
/// Start of the partition, in bytes.
pub(super) const PARTITION_START: u64 = 1 << 20;
/// The largest block size of `mke2fs`.
const BLOCK: u64 = 4096;

/// Writes a file with a mode, and creates the directories above it.
pub(super) fn write_file(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(path, content))
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .or_cannot("write", path)
}

/// Makes an ext4 file system of `bytes` (whole blocks) at an offset, with the tree's content, owned by root.
pub(super) fn make_ext4(
    tree: &Path,
    image: &Path,
    label: &str,
    bytes: u64,
    offset: u64,
) -> Result<()> {
    let program = tools::find("mke2fs")?;
    let mut command = if tools::running_as_root() {
        Command::new(program)
    } else {
        let mut command = Command::new(tools::find("fakeroot")?);
        command.arg("--").arg(program);
        command
    };
    command
        .args("-q -F -t ext4 -O ^has_journal -m 0 -L".split(' '))
        .arg(label)
        .arg("-E")
        .arg(format!("offset={offset},root_owner=0:0,lazy_itable_init=0"))
        .arg("-d")
        .arg(tree)
        .arg(image)
        .arg(format!("{}k", bytes / 1024));
    tools::run(&mut command, "check that the cache's file system has room").map(drop)
}

/// Writes a classic partition table with one Linux partition and the signature that the kernel looks for.
pub(super) fn write_partition_table(image: &Path, bytes: u64) -> Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(image)
        .and_then(|file| file.write_all_at(&partition_table(bytes), 0))
        .or_cannot("write", image)
}

fn partition_table(bytes: u64) -> [u8; 512] {
    let mut sector = [0_u8; 512];
    sector[440..444].copy_from_slice(&ROOT_SIGNATURE.to_le_bytes());
    let entry = &mut sector[446..462];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&((PARTITION_START / 512) as u32).to_le_bytes());
    entry[12..16].copy_from_slice(&((bytes / 512) as u32).to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// Size of a file system for a tree with `spare` bytes more. Whole blocks, because the kernel does not mount
/// a file system that ends beyond its partition.
pub(super) fn room_for(tree: &Path, spare: u64) -> u64 {
    (tree_bytes(tree) * 5 / 4 + spare).next_multiple_of(BLOCK)
}

/// Disk space of a tree, files rounded up to blocks.
fn tree_bytes(tree: &Path) -> u64 {
    let entries = fs::read_dir(tree).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => BLOCK + tree_bytes(&entry.path()),
            Ok(kind) if kind.is_file() => {
                entry
                    .metadata()
                    .map_or(0, |data| data.len())
                    .next_multiple_of(BLOCK)
                    + 256
            }
            _ => BLOCK,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_ends_where_its_partition_does() {
        let tree = tempfile::tempdir().unwrap();
        for spare in [1, 511, 512, 513, 1024, 1536, 4095, 4096] {
            let bytes = room_for(tree.path(), spare);
            assert!(bytes >= spare && bytes % BLOCK == 0, "{spare}: {bytes}");
            let table = partition_table(bytes);
            let sectors = u32::from_le_bytes(table[458..462].try_into().unwrap());
            assert_eq!(u64::from(sectors) * 512, bytes);
        }
    }

    #[test]
    fn the_partition_table_carries_the_identity_on_the_kernel_command_line() {
        let table = partition_table(512 * 100);
        let signature = u32::from_le_bytes(table[440..444].try_into().unwrap());
        assert_eq!(format!("{signature:08x}-01"), ROOT_PARTUUID);
        assert_eq!(
            u32::from_le_bytes(table[454..458].try_into().unwrap()),
            2048
        );
        assert_eq!(u32::from_le_bytes(table[458..462].try_into().unwrap()), 100);
    }
}
