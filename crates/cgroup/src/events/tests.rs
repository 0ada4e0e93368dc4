//! Properties of waiting, on the fake and, in the lab's guest, on the kernel.

use std::time::Instant;

use super::*;
use crate::parse::memory::events as counters;
use crate::FakeFs;

const LONG: Duration = Duration::from_secs(20);
const NOW: Duration = Duration::ZERO;

fn wait(events: &mut Events, timeout: Duration) -> Vec<Wake> {
    let mut out = Vec::new();
    events.wait(timeout, &mut out).unwrap();
    out
}

#[test]
fn nothing_happened_is_an_empty_answer_in_time() {
    let mut events = Events::new().unwrap();
    let start = Instant::now();
    assert_eq!(wait(&mut events, Duration::from_millis(20)), []);
    assert!(start.elapsed() >= Duration::from_millis(15));
}

#[test]
fn a_wake_from_another_thread_ends_the_wait_once() {
    let mut events = Events::new().unwrap();
    let waker = events.waker();
    let thread = std::thread::spawn(move || {
        waker.wake();
        waker.wake();
    });
    assert_eq!(wait(&mut events, LONG), [Wake::Waker]);
    thread.join().unwrap();
    let _ = wait(&mut events, NOW);
    assert_eq!(wait(&mut events, NOW), []);
}

#[test]
fn a_memory_event_names_its_group() {
    let fs = FakeFs::new();
    let id = fs.mkdir("/a");
    fs.mkdir("/b");
    let mut events = Events::new().unwrap();
    for path in ["/a", "/b"] {
        events.watch_memory_events(&fs.open(path).unwrap()).unwrap();
    }
    fs.memory_event("/a", |counters| counters.high = Some(3));
    assert_eq!(wait(&mut events, LONG), [Wake::MemoryEvents(id)]);
    assert_eq!(wait(&mut events, NOW), []);
}

#[test]
fn a_removed_group_is_reported_once() {
    let fs = FakeFs::new();
    let id = fs.mkdir("/a");
    let mut events = Events::new().unwrap();
    events.watch_memory_events(&fs.open("/a").unwrap()).unwrap();
    fs.rmdir("/a");
    assert_eq!(wait(&mut events, LONG), [Wake::Gone(id)]);
    assert_eq!(wait(&mut events, NOW), []);
}

#[test]
fn a_forgotten_group_causes_no_event() {
    let fs = FakeFs::new();
    let id = fs.mkdir("/a");
    let mut events = Events::new().unwrap();
    events.watch_memory_events(&fs.open("/a").unwrap()).unwrap();
    events.unwatch(id);
    fs.memory_event("/a", |counters| counters.high = Some(1));
    assert_eq!(wait(&mut events, NOW), []);
}

#[test]
fn stalls_of_the_host_are_told_until_they_are_over() {
    let fs = FakeFs::new();
    let mut events = Events::new().unwrap();
    events.watch_host_pressure(&*fs).unwrap();
    assert_eq!(wait(&mut events, NOW), []);
    fs.stall_host();
    assert_eq!(wait(&mut events, LONG), [Wake::HostPressure]);
    assert_eq!(wait(&mut events, NOW), []);
}

#[test]
#[ignore = "needs root on a cgroup2 host; run in the lab guest"]
fn the_kernel_reports_memory_high_and_is_silent_about_what_is_removed() {
    use crate::{Mount, RealFs};
    let mount = Mount::detect().unwrap();
    let name = format!("justitia-test-events-{}", std::process::id());
    let dir = mount.path().join(&name);
    std::fs::create_dir(&dir).unwrap();
    let fs = RealFs::new(&mount).unwrap();
    let group = fs.open(&format!("/{name}")).unwrap();
    let mut events = Events::new().unwrap();
    events.watch_memory_events(&group).unwrap();
    events.watch_host_pressure(&fs).unwrap();
    assert_eq!(wait(&mut events, NOW), [], "nothing has happened yet");

    std::fs::write(dir.join("memory.high"), "1048576").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    // `exec`, so that the kill below hits the writer itself, which the kernel may hold back for minutes.
    let script = format!(
        "echo $$ > {0}/cgroup.procs && exec dd if=/dev/zero of={1} bs=1M count=32",
        dir.display(),
        file.path().display()
    );
    let mut child = std::process::Command::new("sh")
        .args(["-c", &script])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut buffer = Buffer::new();
    let mut exceeded = |wake: &Wake| {
        group.read(File::MemoryEvents, &mut buffer).unwrap();
        *wake == Wake::MemoryEvents(group.id()) && counters(buffer.bytes()).high > Some(0)
    };
    let start = Instant::now();
    let mut high = false;
    while !high && start.elapsed() < LONG {
        // A stall event may come first.
        high = wait(&mut events, LONG).iter().any(&mut exceeded);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(high, "memory.high was exceeded and nobody said so");

    let start = Instant::now();
    while !wait(&mut events, Duration::from_millis(1500)).is_empty() {
        assert!(start.elapsed() < LONG, "an idle group does not calm down");
    }
    std::fs::remove_dir(&dir).unwrap();
    let mut woken = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        woken.extend(wait(&mut events, Duration::from_millis(200)));
    }
    // The kernel need not signal the removal to those who poll memory.events.
    let expected = |wake: &Wake| matches!(wake, Wake::Gone(_) | Wake::HostPressure);
    assert!(woken.iter().all(expected) && woken.len() <= 8, "{woken:?}");
}
