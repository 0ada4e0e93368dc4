//! Compares Prometheus's rates of the pods' counters with the counts of the pods' own loops.

use justitia_machine::qemu::Clock;
use serde_json::Value;

use crate::common::{said, Said};
use crate::node;

const SCRIPT: &str = include_str!("prometheus.sh");
/// Range of the queries, in seconds.
const WINDOW: f64 = 300.0;
/// Bytes that each round of a load writes, and bytes that it reads.
const ROUND: f64 = 1_048_576.0;

/// The results of a query: labels and value of each series, and the time of evaluation.
fn series<'a>(answer: &'a Value) -> Vec<(&'a Value, f64, f64)> {
    let results = answer["data"]["result"].as_array().expect("results");
    let number = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
    let sample = |result: &'a Value| {
        let [time, value] = [&result["value"][0], &result["value"][1]];
        (
            &result["metric"],
            time.as_f64().expect("a time"),
            number(value).expect("a number"),
        )
    };
    results.iter().map(sample).collect()
}

/// Rounds that a load had completed at this time since boot, interpolated between two lines.
fn rounds(said: &Said, pod: &str, at: f64) -> f64 {
    let lines = said.text(&format!("count.{pod}")).lines();
    let counts: Vec<(f64, f64)> = lines
        .filter_map(|line| {
            let (up, count) = line.split_once(' ')?;
            Some((up.parse().ok()?, count.parse().ok()?))
        })
        .collect();
    let after = counts.partition_point(|&(up, _)| up < at);
    let [(from, before), (to, count)] = [after - 1, after].map(|line| counts[line]);
    before + (count - before) * (at - from) / (to - from)
}

#[test]
#[ignore = "boots a virtual machine for seven minutes; scripts/test --long runs it"]
fn prometheus_counts_what_a_pods_load_counts_and_a_container_keeps_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = node(SCRIPT, dir.path());
    spec.extra_packages.push("prometheus".into());
    // With this clock the pods' rates are steady under any load of the host.
    spec.clock = Clock::Instructions {
        shift: 1,
        jumps: true,
    };
    let said = said(&spec, "");
    let times = said.text("times");
    let mut numbers = times.split_whitespace().map(str::parse::<f64>);
    let [now, up] = [(); 2].map(|()| numbers.next().unwrap().unwrap());
    for what in ["written", "read"] {
        let answer = said.json(what);
        let series = series(&answer);
        assert_eq!(series.len(), 2, "{answer}");
        for (labels, time, increase) in series {
            let pod = labels["pod"].as_str().unwrap();
            assert_eq!(
                (&labels["namespace"], &labels["container"]),
                (&"shop".into(), &"main".into())
            );
            let end = time - now + up;
            let own = (rounds(&said, pod, end) - rounds(&said, pod, end - WINDOW)) * ROUND;
            println!(
                "{pod} {what}: {increase:.0} of {own:.0} bytes, {:.4}",
                increase / own
            );
            assert!(
                (increase / own - 1.0).abs() < 0.02,
                "{pod} {what}: {increase} of {own}"
            );
        }
    }
    let page = said.json("page");
    let groups = page["groups"].as_array().unwrap().iter();
    let mut names: Vec<&str> = groups.filter_map(|group| group["name"].as_str()).collect();
    names.sort_unstable();
    println!("{names:?}");
    assert!(names.contains(&"shop/db/main"), "{names:?}");

    let again = said.json("again");
    let [(first, ..), (second, ..)] = series(&again)[..] else {
        panic!("one series before the container was started again and one after: {again}");
    };
    assert_ne!(first["group"], second["group"]);
    for label in ["kind", "name", "namespace", "pod", "container"] {
        assert_eq!(first[label], second[label], "{label}");
    }
}
