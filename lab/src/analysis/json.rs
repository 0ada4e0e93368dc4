//! Layout of result.json: one line per key of an object, one line per list of plain values.
//!
//! A run has thousands of samples; with the usual pretty-printing each would take its own line.

use std::fmt::Write;

use serde_json::Value;

/// Renders a value, with a trailing newline.
pub fn render(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value, 0);
    text.push('\n');
    text
}

fn write_value(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('{');
            for (i, (key, field)) in fields.iter().enumerate() {
                start_item(text, i, depth);
                let _ = write!(text, "{}: ", Value::from(key.as_str()));
                write_value(text, field, depth + 1);
            }
            end_items(text, depth, '}');
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                start_item(text, i, depth);
                write_value(text, item, depth + 1);
            }
            end_items(text, depth, ']');
        }
        plain => {
            let _ = write!(text, "{plain}");
        }
    }
}

fn start_item(text: &mut String, index: usize, depth: usize) {
    if index > 0 {
        text.push(',');
    }
    let _ = write!(text, "\n{:width$}", "", width = 2 * (depth + 1));
}

fn end_items(text: &mut String, depth: usize, close: char) {
    let _ = write!(text, "\n{:width$}{close}", "", width = 2 * depth);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rendered_value_reads_back_the_same() {
        let value = json!({
            "a \"quoted\" key": [1, null, 2.5, "x\n"],
            "nested": [{"b": []}, {}],
            "c": {},
        });
        let text = render(&value);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert!(text.contains("[1,null,2.5,\"x\\n\"]"), "{text}");
        assert!(text.ends_with("}\n"));
    }
}
