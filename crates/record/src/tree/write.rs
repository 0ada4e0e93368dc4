//! From trees to bytes.

use std::collections::HashMap;

use serde_json::{Map, Number, Value};

use super::{
    identical, identity, signed, zigzag, ADD, ARRAY, AT, FALSE, FIELDS, FLOAT, LIST, MATCH, NEW,
    NEXT, NINT, NULL, OBJECT, PAGE, PAGES, REF, SAME, STRING, TRUE, UINT, XOR,
};

/// An encoded tree: what it is made of, and what is in it. Apart, because one repeats itself from
/// group to group and from tick to tick, and the other is mostly noise: together they deflate worse.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    tokens: Vec<u8>,
    numbers: Vec<u8>,
}

impl Bytes {
    /// Appends both to a payload.
    pub(crate) fn append_to(&self, payload: &mut Vec<u8>) {
        put_varint(payload, self.tokens.len() as u64);
        payload.extend(&self.tokens);
        payload.extend(&self.numbers);
    }
}

/// Encodes trees, each relative to one before. Begins anew with every keyframe.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    strings: HashMap<String, u64>,
}

impl Writer {
    /// Appends `value` as its difference to `before`.
    pub(crate) fn put(&mut self, out: &mut Bytes, value: &Value, before: Option<&Value>) {
        if before.is_some_and(|before| identical(value, before)) {
            out.tokens.push(SAME);
        } else {
            self.put_other(out, value, before);
        }
    }

    /// The same for a value that is known to differ.
    fn put_other(&mut self, out: &mut Bytes, value: &Value, before: Option<&Value>) {
        match value {
            Value::Null => out.tokens.push(NULL),
            Value::Bool(false) => out.tokens.push(FALSE),
            Value::Bool(true) => out.tokens.push(TRUE),
            Value::Number(number) => put_number(out, number, before),
            Value::String(text) => self.put_string(out, text),
            Value::Array(items) => self.put_array(out, items, before.and_then(Value::as_array)),
            Value::Object(fields) => {
                self.put_object(out, fields, before.and_then(Value::as_object));
            }
        }
    }

    fn put_string(&mut self, out: &mut Bytes, text: &str) {
        if let Some(&number) = self.strings.get(text) {
            out.tokens.push(REF);
            put_varint(&mut out.tokens, number);
            return;
        }
        self.strings
            .insert(text.to_owned(), self.strings.len() as u64);
        out.tokens.push(STRING);
        put_varint(&mut out.tokens, text.len() as u64);
        out.numbers.extend(text.as_bytes());
    }

    fn put_object(
        &mut self,
        out: &mut Bytes,
        fields: &Map<String, Value>,
        before: Option<&Map<String, Value>>,
    ) {
        if let Some(before) = before.filter(|before| before.keys().eq(fields.keys())) {
            out.tokens.push(FIELDS);
            self.put_changed(out, fields.values().zip(before.values()));
            return;
        }
        out.tokens.push(OBJECT);
        put_varint(&mut out.tokens, fields.len() as u64);
        for (name, value) in fields {
            self.put_string(out, name);
            self.put(out, value, before.and_then(|before| before.get(name)));
        }
    }

    fn put_array(&mut self, out: &mut Bytes, items: &[Value], before: Option<&Vec<Value>>) {
        let Some(before) = before.filter(|before| !before.is_empty()) else {
            out.tokens.push(ARRAY);
            put_varint(&mut out.tokens, items.len() as u64);
            for item in items {
                self.put(out, item, None);
            }
            return;
        };
        let mut pairs = items.iter().zip(before);
        if items.len() == before.len() && pairs.all(|(a, b)| identity(a) == identity(b)) {
            out.tokens.push(LIST);
            self.put_changed(out, items.iter().zip(before));
            return;
        }
        out.tokens.push(MATCH);
        put_varint(&mut out.tokens, items.len() as u64);
        let mut places: HashMap<(u64, &str), usize> = HashMap::new();
        for (place, item) in before.iter().enumerate() {
            if let Some(identity) = identity(item) {
                places.insert(identity, place);
            }
        }
        let mut used = vec![false; before.len()];
        let mut next = 0;
        for (place, item) in items.iter().enumerate() {
            let from = match identity(item) {
                Some(identity) => places.get(&identity).copied(),
                None => Some(place).filter(|&at| before.get(at).is_some_and(nameless)),
            };
            let Some(from) = from.filter(|&from| !used[from]) else {
                out.tokens.push(NEW);
                self.put(out, item, None);
                continue;
            };
            used[from] = true;
            if from == next {
                out.tokens.push(NEXT);
            } else {
                out.tokens.push(AT);
                put_varint(&mut out.tokens, from as u64);
            }
            next = from + 1;
            self.put(out, item, Some(&before[from]));
        }
    }

    /// A bit for each pair, set if they differ, and the differences.
    fn put_changed<'a>(
        &mut self,
        out: &mut Bytes,
        pairs: impl ExactSizeIterator<Item = (&'a Value, &'a Value)>,
    ) {
        let bits = out.tokens.len();
        out.tokens.resize(bits + pairs.len().div_ceil(8), 0);
        for (place, (value, before)) in pairs.enumerate() {
            if !identical(value, before) {
                out.tokens[bits + place / 8] |= 1 << (place % 8);
                self.put_other(out, value, Some(before));
            }
        }
    }
}

fn nameless(item: &Value) -> bool {
    identity(item).is_none()
}

fn put_number(out: &mut Bytes, number: &Number, before: Option<&Value>) {
    let before = before.and_then(|before| match before {
        Value::Number(before) => Some(before),
        _ => None,
    });
    if let Some(now) = number.as_u64() {
        let Some(then) = before.and_then(Number::as_u64) else {
            out.tokens.push(UINT);
            put_varint(&mut out.numbers, now);
            return;
        };
        let difference = signed(now.wrapping_sub(then));
        if difference % PAGE == 0 {
            out.tokens.push(PAGES);
            put_varint(&mut out.numbers, zigzag((difference / PAGE) as u64));
        } else {
            out.tokens.push(ADD);
            put_varint(&mut out.numbers, zigzag(difference as u64));
        }
    } else if let Some(now) = number.as_i64() {
        out.tokens.push(NINT);
        put_varint(&mut out.numbers, !(now as u64));
    } else {
        let bits = number.as_f64().unwrap_or(f64::NAN).to_bits();
        let then = before.filter(|before| before.is_f64());
        if let Some(then) = then.and_then(Number::as_f64) {
            let changed = bits ^ then.to_bits();
            let length = (8 - changed.leading_zeros() as usize / 8).max(1);
            out.tokens.push(XOR + length as u8 - 1);
            out.numbers.extend(&changed.to_le_bytes()[..length]);
        } else {
            out.tokens.push(FLOAT);
            out.numbers.extend(bits.to_le_bytes());
        }
    }
}

/// LEB128.
pub(super) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
