//! Trees of JSON values as bytes, each as the difference to a tree before it.
//!
//! The encoding knows nothing of what the trees mean, and names every field once (strings are
//! numbered as they come), so that fields may come and go. One token for a value:
//!
//! ```text
//! SAME                         as before
//! NULL FALSE TRUE              themselves
//! UINT varint, NINT varint     a whole number, or -1 minus it
//! ADD zigzag                   the number before, plus this (modulo 2^64)
//! PAGES zigzag                 the number before, plus 4096 times this
//! FLOAT bits[8]                a floating-point number
//! XOR+n bytes[n]               its bits before, exclusive or with these; n from 1 to 8
//! STRING varint bytes          a new string; it gets the next number
//! REF varint                   the string of this number
//! ARRAY varint items           an array, its items without anything before them
//! LIST bits items              as many items as before; those whose bit is set are given
//! MATCH varint (how item)...   items that come from elsewhere in the array before
//! OBJECT varint (name value).. an object; a field's value before is that of the same name
//! FIELDS bits values           the same names as before; those whose bit is set are given
//! ```
//!
//! The bytes are the length of the tokens (varint), the tokens, and the numbers. Tokens are all of
//! the above but what follows `UINT`, `NINT`, `ADD`, `PAGES`, `FLOAT` and `XOR`, and the bytes of
//! strings: those are the numbers, each in the order in which it is needed.
//!
//! Varints are LEB128. `how` is `NEXT` (the item behind the last one used), `AT` and an index, or
//! `NEW` (nothing before it). Items of an array belong together if both have the same `id` or
//! `group` (and `knob`, if there is one), those without by their place.
//!
//! Decoding works in place and never copies, so that memory is bounded by the bytes decoded. No
//! bytes make it panic or recurse deeper than `DEEPEST`.

mod read;
mod write;

use serde_json::Value;

pub(crate) use read::Reader;
pub(crate) use write::{Bytes, Writer};

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const UINT: u8 = 3;
const NINT: u8 = 4;
const FLOAT: u8 = 5;
const STRING: u8 = 6;
const REF: u8 = 7;
const ARRAY: u8 = 8;
const OBJECT: u8 = 9;
const SAME: u8 = 10;
const ADD: u8 = 11;
const PAGES: u8 = 12;
const FIELDS: u8 = 13;
const LIST: u8 = 14;
const MATCH: u8 = 15;
const XOR: u8 = 16;

const NEXT: u8 = 0;
const AT: u8 = 1;
const NEW: u8 = 2;

const PAGE: i64 = 4096;
const DEEPEST: usize = 64;

/// What tells an item of an array from the others.
fn identity(item: &Value) -> Option<(u64, &str)> {
    let id = item.get("id").or_else(|| item.get("group"))?.as_u64()?;
    let knob = item.get("knob").and_then(Value::as_str);
    Some((id, knob.unwrap_or_default()))
}

/// Equal to the last bit: `-0.0` is not `0.0`.
pub(crate) fn identical(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            a.as_f64().map(f64::to_bits) == b.as_f64().map(f64::to_bits)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| identical(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let mut pairs = a.iter().zip(b);
            a.len() == b.len() && pairs.all(|(a, b)| a.0 == b.0 && identical(a.1, b.1))
        }
        _ => a == b,
    }
}

fn zigzag(difference: u64) -> u64 {
    let signed = signed(difference);
    ((signed << 1) ^ (signed >> 63)) as u64
}

/// The same bits as a number with a sign.
fn signed(number: u64) -> i64 {
    i64::from_ne_bytes(number.to_ne_bytes())
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
