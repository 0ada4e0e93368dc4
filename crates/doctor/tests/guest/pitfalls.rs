//! One pitfall after the other. `JUSTITIA_TEST_FILTER=pitfalls::` runs only these.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use justitia_doctor::{Subject, Verdict};

use super::{
    data_disk, diagnose, drop_caches, evidence, finds, mount, put_right, select, set, silent, Tree,
    LRU_GEN, MIB,
};

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_guest_built_right_has_no_finding() {
    let _right = put_right();
    let tree = Tree::new("right");
    set(tree.root.join("memory.low"), &(96 * MIB).to_string());
    set(tree.root.join("memory.high"), &(400 * MIB).to_string());
    for name in ["db", "web"] {
        let group = tree.group(name);
        set(group.join("memory.max"), &(200 * MIB).to_string());
        set(group.join("memory.low"), &(48 * MIB).to_string());
        set(group.join("io.bfq.weight"), "400");
    }
    let report = diagnose(1);
    for check in &report.checks {
        assert_eq!(check.verdict, Verdict::Fine, "{check:#?}");
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn limits_above_memory_are_found_at_their_level() {
    let _right = put_right();
    let tree = Tree::new("limits");
    let groups = ["db", "web"].map(|name| tree.group(name));
    for group in &groups {
        set(group.join("memory.max"), &(800 * MIB).to_string());
    }
    let report = diagnose(0);
    let name = format!("/{} 1.6 GiB", tree.name);
    finds(
        &report,
        "limits-exceed-memory",
        &Subject::Host,
        &["1.6 GiB", &name],
    );

    set(tree.root.join("memory.max"), &(300 * MIB).to_string());
    let report = diagnose(0);
    let words = ["533 %", "300.0 MiB", "/db 800.0 MiB"];
    finds(&report, "limits-exceed-memory", &tree.subject(""), &words);
    assert_eq!(
        evidence(&report, "limits-exceed-memory", &Subject::Host),
        None
    );

    for group in &groups {
        set(group.join("memory.max"), &(150 * MIB).to_string());
    }
    silent(&diagnose(0), "limits-exceed-memory");
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_protection_is_cut_off_until_its_ancestor_has_one() {
    let _right = put_right();
    let tree = Tree::new("cut");
    let db = tree.group("db");
    set(db.join("memory.low"), &(64 * MIB).to_string());
    let report = diagnose(0);
    finds(
        &report,
        "protection-cut-off",
        &tree.subject("db"),
        &["64.0 MiB"],
    );
    set(tree.root.join("memory.low"), &(64 * MIB).to_string());
    silent(&diagnose(0), "protection-cut-off");
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_weight_without_a_scheduler_is_found_until_there_is_one() {
    let _right = put_right();
    let disk = data_disk();
    let tree = Tree::new("weights");
    let db = tree.group("db");
    set(db.join("io.bfq.weight"), "800");
    silent(&diagnose(0), "weights-not-enforced");
    select(&disk, "none");
    let report = diagnose(0);
    select(&disk, "bfq");
    // The file may go with the last disk that BFQ schedules, and the weight with it.
    let subject = Subject::Disk(disk);
    if evidence(&report, "weights-not-enforced", &subject).is_none() {
        assert!(!db.join("io.bfq.weight").exists(), "{report:#?}");
        return;
    }
    finds(
        &report,
        "weights-not-enforced",
        &subject,
        &["scheduler is none"],
    );
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn protection_under_the_multi_generational_lru_is_noted() {
    let _right = put_right();
    if !Path::new(LRU_GEN).exists() {
        silent(&diagnose(0), "mglru-protection");
        return;
    }
    let tree = Tree::new("mglru");
    let db = tree.group("db");
    set(db.join("memory.low"), &(64 * MIB).to_string());
    set(LRU_GEN, "y");
    let on = diagnose(0);
    set(LRU_GEN, "n");
    finds(
        &on,
        "mglru-protection",
        &Subject::Host,
        &["MGLRU is on", "/db 64.0 MiB"],
    );
    silent(&diagnose(0), "mglru-protection");
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn removed_groups_that_hold_page_cache_are_counted() {
    let _right = put_right();
    let tree = Tree::new("zombies");
    let files = tempfile::tempdir().unwrap();
    for at in 0..150 {
        let group = tree.group("job");
        set(group.join("cgroup.procs"), "0");
        fs::write(files.path().join(at.to_string()), vec![1; 64 << 10]).unwrap();
        set(mount().join("cgroup.procs"), "0");
        fs::remove_dir(&group).unwrap();
    }
    let stat = fs::read_to_string(mount().join("cgroup.stat")).unwrap();
    let dying = stat
        .lines()
        .find_map(|line| line.strip_prefix("nr_dying_descendants "))
        .and_then(|count| count.parse::<u64>().ok())
        .unwrap();
    let report = diagnose(0);
    if dying > 100 {
        let below = format!("below /{}", tree.name);
        let words = ["removed cgroups", below.as_str()];
        finds(&report, "zombie-cgroups", &Subject::Host, &words);
    } else {
        // Page cache is handed to the parent on newer kernels.
        silent(&report, "zombie-cgroups");
    }
    drop(files);
    drop_caches();
}

/// Not a test: what runs in a group. Holds anonymous memory and reads a file over and over.
#[test]
#[ignore = "what the next one runs in a group"]
fn hog() {
    let Some(job) = std::env::var("JUSTITIA_HOG").ok() else {
        return;
    };
    let mut parts = job.splitn(3, ' ');
    let group = parts.next().unwrap();
    let anon: usize = parts.next().unwrap().parse().unwrap();
    let file = parts.next().unwrap();
    set(Path::new(group).join("cgroup.procs"), "0");
    let held = vec![1u8; anon];
    let mut chunk = vec![0; 1 << 20];
    loop {
        let mut file = fs::File::open(file).unwrap();
        while file.read(&mut chunk).unwrap() > 0 {
            assert_eq!(held.len(), anon, "it is still used");
        }
    }
}

struct Hog(Child);

impl Hog {
    fn start(group: &Path, anon: u64, file: &Path) -> Hog {
        let job = format!("{} {anon} {}", group.display(), file.display());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "pitfalls::hog", "--ignored"])
            .env("JUSTITIA_HOG", job)
            .spawn()
            .unwrap();
        Hog(child)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn page_cache_that_anonymous_memory_starves_is_found_and_room_silences_it() {
    let _right = put_right();
    let tree = Tree::new("starved");
    let db = tree.group("db");
    set(db.join("memory.max"), &(96 * MIB).to_string());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("table");
    fs::write(&file, vec![7; 32 << 20]).unwrap();
    drop_caches();
    let _hog = Hog::start(&db, 88 * MIB, &file);
    std::thread::sleep(Duration::from_secs(10));
    let report = diagnose(3);
    let subject = tree.subject("db");
    let words = ["no room", "96.0 MiB", "pages/s again"];
    finds(&report, "page-cache-starved", &subject, &words);

    set(db.join("memory.max"), &(160 * MIB).to_string());
    std::thread::sleep(Duration::from_secs(3));
    let report = diagnose(2);
    for id in ["page-cache-starved", "limit-too-small"] {
        assert_eq!(evidence(&report, id, &subject), None);
    }
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn a_thousand_groups_are_all_looked_at() {
    let _right = put_right();
    let tree = Tree::new("many");
    let groups: Vec<PathBuf> = (0..1000).map(|at| tree.group(&format!("g{at}"))).collect();
    let report = diagnose(0);
    for group in groups {
        fs::remove_dir(group).unwrap();
    }
    assert!(report.host.groups_total > 1000);
}
