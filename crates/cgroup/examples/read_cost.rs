//! Measures what reading a group costs: `read_cost [DIRECTORY [GROUP]]`.
//!
//! Without arguments it measures the fake host and an ordinary directory. With a directory (a cgroup2 mount,
//! say) and a path below it, it measures that group.

use std::sync::Arc;
use std::time::Instant;

use justitia_cgroup::{Buffer, CgroupFs, FakeFs, Fs, Group, RealFs, Want};

const ROUNDS: u32 = 20_000;

fn measure(what: &str, mut run: impl FnMut()) {
    run();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        run();
    }
    let each = start.elapsed().as_secs_f64() / f64::from(ROUNDS) * 1e6;
    println!("  {what:<28} {each:7.2} us");
}

fn report(name: &str, fs: &Fs, group: &Group) {
    println!("{name}: {}", group.path());
    let mut buffer = Buffer::new();
    let mut read = |what: &str, want: Want| {
        measure(what, || {
            let _ = group.gauges(want, &mut buffer);
        });
    };
    read("everything", Want::ALL);
    read("memory", Want::MEMORY);
    let pressure = Want {
        memory: false,
        knobs: false,
        swap: false,
        ..Want::ALL
    };
    read("pressure", pressure);
    read("knobs", Want::KNOBS);
    measure("activity", || {
        let _ = group.activity(&mut buffer);
    });
    let mut pids = Vec::new();
    measure("processes", || {
        pids.clear();
        let _ = group.pids(&mut buffer, &mut pids);
    });
    let mut children = Vec::new();
    measure("children", || {
        children.clear();
        let _ = fs.children(group.path(), usize::MAX, &mut children);
    });
    if let Ok(mut process) = fs.process(std::process::id()) {
        measure("io of one process", || {
            let _ = process.io(&mut buffer);
        });
    }
    measure("host", || {
        let _ = fs.read_host();
    });
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    if let Some(directory) = arguments.next() {
        let fs: Fs = Arc::new(RealFs::on_directory(directory)?);
        let group = fs.open(&arguments.next().unwrap_or_else(|| "/".to_owned()))?;
        report("directory", &fs, &group);
        return Ok(());
    }
    let fake = FakeFs::new();
    fake.mkdir("/app");
    let group = fake.open("/app")?;
    let imitation = std::env::temp_dir().join(format!("justitia-read-cost-{}", std::process::id()));
    std::fs::create_dir_all(imitation.join("app"))?;
    for file in justitia_cgroup::File::ALL {
        if let Some(text) = fake.text("/app", file.name()) {
            std::fs::write(imitation.join("app").join(file.name()), text)?;
        }
    }
    report("fake", &(fake as Fs), &group);
    let fs: Fs = Arc::new(RealFs::on_directory(&imitation)?);
    let result = fs
        .open("/app")
        .map(|group| report("ordinary directory", &fs, &group));
    std::fs::remove_dir_all(&imitation)?;
    Ok(result?)
}
