//! Renders the report as a table.

use std::fmt::Write as _;

use justitia_policy::units::Bytes;
use justitia_vm::report::{ImageReport, MachineReport, Report};

use crate::output::{bytes, percent, Page, Screen, Table};

/// The machines, and with `images` each image.
pub(super) fn text(report: &Report, images: bool, screen: Screen) -> Page {
    let mut text = Page::on(screen);
    if report.machines.is_empty() {
        text.push_str("no virtual machine runs here\n");
        return text;
    }
    let mut rows: Vec<[String; 10]> = Vec::new();
    for machine in &report.machines {
        rows.push(machine_row(machine));
        let images = machine.images.iter().filter(|_| images);
        rows.extend(images.map(image_row));
    }
    let table = Table::of(rows)
        .left("MACHINE", 0, |row| row[0].clone())
        .right("PID", 3, |row| row[1].clone())
        .left("BY", 5, |row| row[2].clone())
        .right("CACHED", 0, |row| row[3].clone())
        .right("LOW", 4, |row| row[4].clone())
        .right("REQUESTED", 2, |row| row[5].clone())
        .right("SECOND", 1, |row| row[6].clone())
        .right("HITS", 0, |row| row[7].clone())
        .right("DROPPED", 1, |row| row[8].clone())
        .right("EVICTED", 2, |row| row[9].clone());
    text.table(&table);
    let policy = super::name(report.policy);
    writeln!(
        text,
        "policy {policy}; {} free and {} page cache on the host",
        bytes(report.free_bytes),
        bytes(report.cache_bytes),
    );
    if report.policy.is_none() {
        text.push_str("requests are not counted: justitia vm run counts them\n");
    }
    text
}

fn machine_row(machine: &MachineReport) -> [String; 10] {
    [
        machine.name.clone(),
        machine.pid.to_string(),
        machine.manager.clone(),
        bytes(machine.cached_bytes),
        bytes(machine.low_watermark_bytes),
        bytes(machine.requested_bytes),
        bytes(machine.second_bytes),
        percent(machine.hit_ratio),
        bytes(machine.dropped_bytes),
        bytes(machine.evicted_bytes),
    ]
}

fn image_row(image: &ImageReport) -> [String; 10] {
    let size = image.bytes.map(|bytes| Bytes(bytes).to_string());
    let format = image.format.clone().filter(|format| format != "raw");
    let mut notes: Vec<String> = size.into_iter().chain(format).collect();
    if let Some(backing) = &image.backing {
        notes.push(format!("on {backing}"));
    }
    if image.direct {
        notes.push("cache=none".to_owned());
    }
    if image.machines > 1 {
        notes.push(format!("shared by {}", image.machines));
    }
    let mut name = format!("  {}", image.path);
    if !notes.is_empty() {
        let _ = write!(name, " ({})", notes.join(", "));
    }
    [
        name,
        String::new(),
        String::new(),
        bytes(image.cached_bytes),
        String::new(),
        bytes(image.requested_bytes),
        bytes(image.second_bytes),
        String::new(),
        bytes(image.dropped_bytes),
        bytes(image.evicted_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_counted_is_a_dash_with_a_remark() {
        let report = Report {
            machines: vec![MachineReport {
                name: "db".into(),
                pid: 7,
                manager: "plain".into(),
                cached_bytes: Some(1 << 20),
                images: vec![ImageReport {
                    path: "/i/db.qcow2".into(),
                    format: Some("qcow2".into()),
                    bytes: Some(1 << 30),
                    backing: Some("base.raw".into()),
                    machines: 2,
                    ..ImageReport::default()
                }],
                ..MachineReport::default()
            }],
            ..Report::default()
        };
        let told = text(&report, true, Screen::FILE);
        let row = told.lines().nth(1).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[..5], ["db", "7", "plain", "1.0", "MiB"]);
        assert!(cells[5..].iter().all(|cell| *cell == "-"), "{row}");
        assert!(
            told.contains("/i/db.qcow2 (1.0 GiB, qcow2, on base.raw, shared by 2)"),
            "{told}"
        );
        assert!(told.contains("not counted"));
        assert!(!text(&report, false, Screen::FILE).contains("qcow2"));
        assert_eq!(
            &*text(&Report::default(), true, Screen::FILE),
            "no virtual machine runs here\n"
        );
    }
}
