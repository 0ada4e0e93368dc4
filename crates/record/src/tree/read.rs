//! From bytes to trees, in place: what does not change is not touched.

use serde_json::{Map, Number, Value};

use super::{
    signed, unzigzag, ADD, ARRAY, AT, DEEPEST, FALSE, FIELDS, FLOAT, LIST, MATCH, NEW, NEXT, NINT,
    NULL, OBJECT, PAGE, PAGES, REF, SAME, STRING, TRUE, UINT, XOR,
};

/// What is left of an encoded tree.
struct Input<'a> {
    tokens: &'a [u8],
    numbers: &'a [u8],
}

/// Decodes trees, each relative to one before. Begins anew with every keyframe.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    strings: Vec<String>,
}

/// `None` from any of these: the bytes are no encoding of a tree after that one.
impl Reader {
    /// Turns the tree before (if that is `known`) into the next one. After a failure it is neither.
    pub(crate) fn take(&mut self, mut bytes: &[u8], tree: &mut Value, known: bool) -> Option<()> {
        let length = usize::try_from(varint(&mut bytes)?).ok()?;
        let (tokens, numbers) = bytes.split_at_checked(length)?;
        let mut input = Input { tokens, numbers };
        self.value(&mut input, tree, known, 0)?;
        (input.tokens.is_empty() && input.numbers.is_empty()).then_some(())
    }

    /// `known`: there was a value before, and `value` is it.
    fn value(
        &mut self,
        input: &mut Input<'_>,
        value: &mut Value,
        known: bool,
        depth: usize,
    ) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        let token = byte(&mut input.tokens)?;
        match token {
            NULL => *value = Value::Null,
            FALSE => *value = Value::Bool(false),
            TRUE => *value = Value::Bool(true),
            UINT => *value = varint(&mut input.numbers)?.into(),
            NINT => *value = Value::Number(Number::from(signed(!varint(&mut input.numbers)?))),
            ADD | PAGES => {
                let then = value.as_u64().filter(|_| known)?;
                let step = unzigzag(varint(&mut input.numbers)?);
                let step = step.wrapping_mul(if token == PAGES { PAGE as u64 } else { 1 });
                *value = then.wrapping_add(step).into();
            }
            FLOAT => *value = float(bits(&mut input.numbers, 8)?)?,
            XOR..=0x17 => {
                let changed = bits(&mut input.numbers, usize::from(token - XOR) + 1)?;
                let then = value.as_f64().filter(|_| known && value.is_f64())?;
                *value = float(then.to_bits() ^ changed)?;
            }
            STRING | REF => *value = Value::String(self.string(token, input)?.to_owned()),
            ARRAY => {
                let mut items = Vec::new();
                for _ in 0..varint(&mut input.tokens)? {
                    let mut item = Value::Null;
                    self.value(input, &mut item, false, depth + 1)?;
                    items.push(item);
                }
                *value = Value::Array(items);
            }
            LIST => {
                let items = value.as_array_mut().filter(|_| known)?;
                self.changed(input, items.len(), items.iter_mut(), depth)?;
            }
            MATCH => {
                let before = std::mem::take(value.as_array_mut().filter(|_| known)?);
                *value = Value::Array(self.matched(input, before, depth)?);
            }
            OBJECT => {
                let mut before = match std::mem::take(value) {
                    Value::Object(before) if known => before,
                    _ => Map::new(),
                };
                let mut fields = Map::new();
                for _ in 0..varint(&mut input.tokens)? {
                    let token = byte(&mut input.tokens)?;
                    let name = self.string(token, input)?.to_owned();
                    let then = before.remove(&name);
                    let known = then.is_some();
                    let mut field = then.unwrap_or_default();
                    self.value(input, &mut field, known, depth + 1)?;
                    fields.insert(name, field);
                }
                *value = Value::Object(fields);
            }
            FIELDS => {
                let fields = value.as_object_mut().filter(|_| known)?;
                self.changed(input, fields.len(), fields.values_mut(), depth)?;
            }
            SAME if known => {}
            _ => return None,
        }
        Some(())
    }

    fn changed<'a>(
        &mut self,
        input: &mut Input<'_>,
        count: usize,
        values: impl Iterator<Item = &'a mut Value>,
        depth: usize,
    ) -> Option<()> {
        let bits = take(&mut input.tokens, count.div_ceil(8))?;
        for (place, value) in values.enumerate() {
            if bits[place / 8] & (1 << (place % 8)) != 0 {
                self.value(input, value, true, depth + 1)?;
            }
        }
        Some(())
    }

    fn matched(
        &mut self,
        input: &mut Input<'_>,
        before: Vec<Value>,
        depth: usize,
    ) -> Option<Vec<Value>> {
        let mut before: Vec<Option<Value>> = before.into_iter().map(Some).collect();
        let mut items = Vec::new();
        let mut next = 0;
        for _ in 0..varint(&mut input.tokens)? {
            let from = match byte(&mut input.tokens)? {
                NEXT => Some(next),
                AT => Some(usize::try_from(varint(&mut input.tokens)?).ok()?),
                NEW => None,
                _ => return None,
            };
            let mut item = match from {
                // Each only once: nothing is copied.
                Some(from) => {
                    next = from.checked_add(1)?;
                    before.get_mut(from)?.take()?
                }
                None => Value::Null,
            };
            self.value(input, &mut item, from.is_some(), depth + 1)?;
            items.push(item);
        }
        Some(items)
    }

    fn string(&mut self, token: u8, input: &mut Input<'_>) -> Option<&str> {
        let number = varint(&mut input.tokens)?;
        match token {
            REF => {
                let place = usize::try_from(number).ok()?;
                self.strings.get(place).map(String::as_str)
            }
            STRING => {
                let text = take(&mut input.numbers, usize::try_from(number).ok()?)?;
                let text = std::str::from_utf8(text).ok()?.to_owned();
                self.strings.push(text);
                self.strings.last().map(String::as_str)
            }
            _ => None,
        }
    }
}

/// A number from its bits.
fn float(bits: u64) -> Option<Value> {
    // Numbers that are not finite are not JSON; the writer wrote none.
    Some(Value::Number(Number::from_f64(f64::from_bits(bits))?))
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(first)
}

/// The first so many bytes.
fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(first)
}

/// So many bytes as a little-endian number.
fn bits(bytes: &mut &[u8], length: usize) -> Option<u64> {
    let mut bits = [0; 8];
    bits[..length].copy_from_slice(take(bytes, length)?);
    Some(u64::from_le_bytes(bits))
}

/// LEB128, up to 64 bits.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = byte(bytes)?;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
