//! Properties of the parsers: exact on the kernel's text, unknown is `None`, no input panics.

use justitia_policy::units::{Bytes, Limit};
use justitia_policy::Color;
use proptest::prelude::*;

use super::*;

const MEMORY_STAT: &[u8] = b"anon 1048576\nfile 8388608\nkernel 40960\nshmem 4096\n\
file_mapped 12288\nfile_dirty 100\nfile_writeback 20\nactive_file 5\ninactive_file 6\n\
workingset_refault_file 7\npgscan 9\nworkingset_activate_file 8\n";

#[test]
fn page_cache_is_file_without_shmem() {
    let memory = memory::stat(MEMORY_STAT).memory();
    assert_eq!(memory.file, Some(Bytes(8_388_608 - 4096)));
    assert_eq!(memory.file_dirty, Some(Bytes(120)));
    assert_eq!(memory.refault_pages, Some(7));
    assert_eq!(memory::stat(b"file 10\n").memory().file, None);
}

#[test]
fn mapped_shared_memory_is_no_mapped_page_cache_but_code_is() {
    let mapped_mib = |file: u64, shmem: u64, mapped: u64| {
        let [file, shmem, mapped] = [file + shmem, shmem, mapped].map(|mib| mib << 20);
        let text = format!("file {file}\nshmem {shmem}\nfile_mapped {mapped}\n");
        memory::stat(text.as_bytes()).memory().file_mapped
    };
    assert_eq!(mapped_mib(2000, 0, 300), Some(Bytes::mib(300)));
    assert_eq!(mapped_mib(2000, 8192, 8192 + 300), Some(Bytes::mib(300)));
    // Of what is mapped, as much may be code as a limit leaves every group.
    assert_eq!(mapped_mib(2000, 8192, 8192), Some(Bytes::mib(16)));
    assert_eq!(mapped_mib(2000, 8192, 4), Some(Bytes::mib(4)));
    assert_eq!(mapped_mib(5, 8192, 8192), Some(Bytes::mib(5)));
    assert_eq!(
        memory::stat(b"file 10\nfile_mapped 5\n")
            .memory()
            .file_mapped,
        None
    );
}

#[test]
fn a_counter_the_kernel_lacks_is_unknown() {
    let stat = memory::stat(b"workingset_refault_file 7\n");
    assert_eq!(stat.workingset_refault_file, Some(7));
    assert_eq!(stat.workingset_activate_file, None);
}

#[test]
fn a_limit_is_bytes_or_max_or_unknown() {
    assert_eq!(memory::limit(b"max\n"), Some(Limit::Max));
    assert_eq!(memory::limit(b"4096\n"), Some(Limit::Bytes(Bytes(4096))));
    for wrong in [&b""[..], b"-1\n", b"maximum\n", b"99999999999999999999\n"] {
        assert_eq!(memory::limit(wrong), None, "{wrong:?}");
    }
}

#[test]
fn pressure_totals_come_from_their_own_line() {
    let text = b"some avg10=0.00 avg60=0.12 avg300=0.05 total=123\n\
full avg10=0.00 avg60=0.00 avg300=0.00 total=45\n";
    let totals = psi::totals(text);
    assert_eq!((totals.some_us, totals.full_us), (Some(123), Some(45)));
    let cpu = psi::totals(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n");
    assert_eq!((cpu.some_us, cpu.full_us), (Some(9), None));
}

#[test]
fn devices_of_io_stat_are_told_apart() {
    let mut seen = Vec::new();
    let text = b"259:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n7:1 \n8:0 rbytes=5\n";
    io::stat(text, |device, bytes| {
        seen.push((device.to_string(), bytes.read, bytes.written));
    });
    assert_eq!(
        seen,
        [
            ("259:0".to_owned(), Some(10), Some(20)),
            ("7:1".to_owned(), None, None),
            ("8:0".to_owned(), Some(5), None),
        ]
    );
}

#[test]
fn counters_of_io_stat_belong_to_the_last_device_before_them() {
    let mut seen = Vec::new();
    io::stat(b"7:1 7:0 8:0 rbytes=5\n", |device, bytes| {
        seen.push((device.to_string(), bytes.read));
    });
    let seen: Vec<_> = seen
        .iter()
        .map(|(device, read)| (&**device, *read))
        .collect();
    assert_eq!(seen, [("7:1", None), ("7:0", None), ("8:0", Some(5))]);
}

#[test]
fn the_default_weight_is_not_a_device_weight() {
    let text = b"default 250\n8:16 500\n";
    assert_eq!(io::default_weight(text), Some(250));
    assert_eq!(io::default_weight(b"300\n"), Some(300));
    assert_eq!(io::default_weight(b"8:16 500\n"), None);
}

#[test]
fn memory_events_are_found_by_name() {
    let events = memory::events(b"low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n");
    assert_eq!((events.low, events.high), (Some(1), Some(2)));
    assert_eq!(events.oom_kill, Some(5));
    assert_eq!(memory::events(b"").high, None);
}

#[test]
fn host_page_cache_counts_buffers_and_leaves_shmem_out() {
    let text = b"MemTotal:        1000 kB\nMemFree:          100 kB\nBuffers:            7 kB\n\
Cached:           300 kB\nSwapCached:         1 kB\nShmem:             20 kB\n";
    let info = memory::meminfo(text);
    assert_eq!(info.file(), Some(Bytes(287 * 1024)));
    assert_eq!(info.total, Some(Bytes(1000 * 1024)));
    assert_eq!(memory::meminfo(b"Cached: 300 kB\n").file(), None);
}

#[test]
fn memory_kept_free_is_summed_over_zones_and_not_over_cpus() {
    let text = b"Node 0, zone DMA\n  pages free 2816\n        boost    0\n        min      66\n\
        low      82\n        high     98\n  pagesets\n    cpu: 0\n       high:  500\n\
Node 0, zone Normal\n  pages free 9\n        high     1002\n";
    assert_eq!(memory::kept_free_pages(text), Some(1100));
    assert_eq!(memory::kept_free_pages(b"Node 0\n"), None);
}

#[test]
fn a_zone_keeps_its_protection_from_higher_zones_free_and_no_more_than_it_has() {
    // A machine of 24 GB; the kernel's MemAvailable counts these pages as not available.
    let text = b"Node 0, zone DMA\n  high 16\n  managed  3840\n\
        protection: (0, 3019, 24090, 24090, 24090)\n\
Node 0, zone DMA32\n  high 3660\n  managed  772915\n\
        protection: (0, 0, 21071, 21071, 21071)\n\
Node 0, zone Normal\n  high 25557\n  managed  5394266\n  protection: (0, 0, 0, 0, 0)\n\
Node 0, zone Movable\n  high 32\n  managed  0\n  protection: (0, 0, 0, 0, 0)\n";
    let kept = 3840 + (3660 + 21071) + 25557;
    assert_eq!(memory::kept_free_pages(text), Some(kept));
}

#[test]
fn a_process_is_identified_whatever_its_name() {
    let text = b"42 (a) b) R (x) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2\n";
    let stat = proc::process_stat(text).unwrap();
    assert_eq!((stat.parent, stat.start_ticks), (7, 98765));
}

#[test]
fn io_of_a_process_needs_all_counters() {
    let text = b"rchar: 10\nwchar: 20\nsyscr: 3\nsyscw: 4\nread_bytes: 0\n";
    let io = proc::process_io(text).unwrap();
    assert_eq!((io.rchar, io.wchar, io.syscr, io.syscw), (10, 20, 3, 4));
    assert_eq!(proc::process_io(b"rchar: 10\n"), None);
}

#[test]
fn processes_of_foreign_pid_namespaces_are_left_out_and_told() {
    let mut pids = Vec::new();
    assert!(!proc::pids(b"12\n0\n4000\n", &mut pids));
    assert_eq!(pids, [12, 4000]);
    assert!(proc::pids(b"12\n", &mut pids));
}

#[test]
fn mounts_have_their_type_and_options() {
    let text = b"31 23 0:28 / /sys/fs/cgroup rw shared:9 - cgroup2 none rw,memory_recursiveprot\n\
35 31 0:32 / /cg\\040v1/memory ro,relatime - cgroup cgroup rw,memory\n\
40 1 8:1 / / rw - ext4 /dev/sda1 rw,data=journal\n";
    let mounts = mountinfo::mounts(text);
    let [v2, v1, root] = &mounts[..] else {
        panic!("{mounts:?}");
    };
    assert!(v2.kind == "cgroup2" && v2.has("memory_recursiveprot") && !v2.read_only);
    assert!(v1.is_v1_of("memory") && v1.read_only && !v2.is_v1_of("memory"));
    assert_eq!(v1.mount_point, "/cg v1/memory");
    assert_eq!(
        (root.kind.as_str(), root.source.as_str()),
        ("ext4", "/dev/sda1")
    );
    let device = Some(crate::Device { major: 8, minor: 1 });
    assert_eq!((root.id, root.device), (40, device));
    assert!(root.has("data=journal") && !root.read_only);
    let text = b"41 1 0:9 / /cd ro - iso9660 /dev/sr0 ro\n36 28 x:y /\n36\n";
    let mounts = mountinfo::mounts(text);
    assert!(mounts.len() == 1 && mounts[0].read_only);
}

#[test]
fn only_a_space_separates_the_fields_of_a_mount() {
    let text = b"41 1 8:1 / /a\rb\x0cc rw - ext4  rw,noquota\n";
    let mounts = mountinfo::mounts(text);
    assert_eq!(mounts[0].mount_point, "/a\rb\x0cc");
    assert!(mounts[0].source.is_empty() && mounts[0].has("noquota"));
}

/// Text that looks like kernel files more often than chance.
fn kernelish() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("default".to_owned()),
        Just("some".to_owned()),
        Just("total=".to_owned()),
        Just("8:0".to_owned()),
        Just("rbytes=1".to_owned()),
        Just("high".to_owned()),
        Just("MemTotal:".to_owned()),
        Just("rchar:".to_owned()),
        Just(")".to_owned()),
        Just("\\04".to_owned()),
        Just("-".to_owned()),
        Just("cgroup2".to_owned()),
        any::<u64>().prop_map(|n| n.to_string()),
        "[ -~]{0,6}",
    ];
    let separator = prop_oneof![Just(" "), Just("\n"), Just("\t"), Just(":")];
    proptest::collection::vec((word, separator), 0..40).prop_map(|parts| {
        parts
            .into_iter()
            .flat_map(|(word, separator)| (word + separator).into_bytes())
            .collect()
    })
}

#[test]
fn a_declaration_is_a_color_and_a_reason() {
    let read = |text: &str| {
        let said = color::declaration(text.as_bytes()).unwrap();
        (said.color, said.reason)
    };
    assert_eq!(read("green"), (Color::Green, String::new()));
    assert_eq!(read("RED\n"), (Color::Red, String::new()));
    assert_eq!(
        read("Yellow 1763654400 p99  12 ms\0"),
        (Color::Yellow, "p99 12 ms".into())
    );
    assert_eq!(read("red queue 17"), (Color::Red, "queue 17".into()));
    assert_eq!(
        read("red \u{1b}[2J<b>\u{fc}"),
        (Color::Red, "?[2J<b>??".into())
    );
}

#[test]
fn an_invalid_declaration_says_why() {
    use color::NoColor::{Malformed, TooLong};
    for text in ["", "\0", "  ", "greenish", "12 green", "gr\0een"] {
        assert_eq!(
            color::declaration(text.as_bytes()),
            Err(Malformed),
            "{text:?}"
        );
    }
    let mut text = b"green ".to_vec();
    text.resize(color::LONGEST, b'x');
    assert!(color::declaration(&text).is_ok());
    text.push(b'x');
    assert_eq!(color::declaration(&text), Err(TooLong));
}

proptest! {
    #[test]
    fn a_reason_is_short_and_harmless(
        start in prop_oneof![Just("green "), Just("RED 7 "), Just("")],
        rest in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let text = [start.as_bytes(), &rest].concat();
        let harmless = |text: &str| text.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        if let Ok(said) = color::declaration(&text) {
            prop_assert!(harmless(&said.reason) && said.reason.len() <= color::LONGEST);
        }
        let told = color::reason(&String::from_utf8_lossy(&rest));
        prop_assert!(harmless(&told) && told.len() <= color::LONGEST);
    }

    #[test]
    fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..400)) {
        everything(&text);
    }

    #[test]
    fn no_kernel_like_text_panics(text in kernelish()) {
        everything(&text);
    }

    #[test]
    fn every_number_is_read_back(value: u64) {
        prop_assert_eq!(number(value.to_string().as_bytes()), Some(value));
        let text = format!("{value}\n");
        prop_assert_eq!(memory::limit(text.as_bytes()), Some(Limit::Bytes(Bytes(value))));
    }

    #[test]
    fn a_torn_memory_stat_never_invents_a_value(cut in 0..MEMORY_STAT.len()) {
        let whole = memory::stat(MEMORY_STAT);
        let torn = memory::stat(&MEMORY_STAT[..cut]);
        // Only the last, cut line may differ; anything before it is exact, anything after unknown.
        let complete = MEMORY_STAT[..cut].iter().rposition(|&byte| byte == b'\n').map_or(0, |n| n + 1);
        let before = memory::stat(&MEMORY_STAT[..complete]);
        prop_assert!(before.anon.is_none() || before.anon == whole.anon);
        prop_assert!(torn.workingset_activate_file.is_none() || cut + 2 > MEMORY_STAT.len());
    }

    #[test]
    fn io_stat_sums_what_was_printed(lines in proptest::collection::vec((0u32..300, 0u32..300, any::<u32>()), 0..20)) {
        let text = lines
            .iter()
            .map(|(major, minor, read)| format!("{major}:{minor} rbytes={read} wbytes=1"))
            .collect::<Vec<_>>()
            .join("\n");
        let mut sum = 0u64;
        io::stat(text.as_bytes(), |_, bytes| sum += bytes.read.unwrap());
        prop_assert_eq!(sum, lines.iter().map(|line| u64::from(line.2)).sum::<u64>());
    }
}
