//! Counters of the kernel module's gate under a policy, in one line, from the agent's report two thirds
//! through the measured phase.

use serde_json::Value;

use super::weighted::Document;

/// One line for each policy that had a gate, from its last run.
pub fn lines(document: &Document) -> Vec<String> {
    let lines = document.in_order().filter_map(|(policy, result)| {
        let status = result.runs.last()?.record.agent_status.as_ref()?;
        let gate = status.get("gate").filter(|gate| gate.is_object())?;
        Some(format!("{}: {}", policy.name(), words(gate)))
    });
    lines.collect()
}

/// The device with the most waits, in words.
fn words(gate: &Value) -> String {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or("unknown").to_owned();
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap_or_default();
    let state = text(gate, "state");
    let devices = gate["devices"].as_array().map_or(&[][..], Vec::as_slice);
    let busiest = devices
        .iter()
        .max_by_key(|device| number(device, "enqueued_total"));
    let Some(device) = busiest else {
        return format!("the gate was {state}, and no device was written to");
    };
    let granted = number(device, "granted_total");
    let of_granted = |key: &str| {
        let part = number(device, key) as f64 / granted.max(1) as f64;
        format!("{:.1} %", part * 100.0)
    };
    format!(
        "the gate was {state}, order {}: {} waits, {} granted out of turn, {} timed out, {} times opened; \
         longest queue {}, longest wait {:.2} s",
        text(gate, "order"),
        number(device, "enqueued_total"),
        of_granted("reordered_total"),
        number(device, "timed_out_total"),
        number(device, "opened_total"),
        number(device, "longest_queue"),
        number(device, "longest_wait_us") as f64 / 1e6,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_gate_is_described_by_its_busiest_device() {
        let gate = json!({"state": "closed", "order": "stride", "devices": [
            {"enqueued_total": 1},
            {"enqueued_total": 1000, "granted_total": 800, "reordered_total": 200, "timed_out_total": 3,
             "opened_total": 0, "longest_queue": 31, "longest_wait_us": 1_500_000},
        ]});
        let words = words(&gate);
        for word in [
            "closed",
            "stride",
            "1000 waits",
            "25.0 % granted out of turn",
            "1.50 s",
        ] {
            assert!(words.contains(word), "{word} in {words}");
        }
        assert!(super::words(&json!({"state": "disabled"})).contains("no device"));
    }
}
