//! A declared color: `COLOR [anything]`, as an application writes it into the extended attribute
//! `user.justitia.color`.
//!
//! The container that writes it is not trusted. The text is at most [`LONGEST`] bytes; its first word is
//! `green`, `yellow` or `red` in any case. The rest is a reason for people. Only printable ASCII of it is
//! kept, so that it harms neither a terminal nor a page. A second word of digits only is a count that makes
//! each writing differ from the one before, and is not shown.

use justitia_policy::Color;

/// The longest declaration, bytes.
pub const LONGEST: usize = 255;

/// A valid declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    /// The color.
    pub color: Color,
    /// The text after the color, made harmless.
    pub reason: String,
}

/// Reason why a text is no declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoColor {
    /// It does not begin with a color.
    Malformed,
    /// It is longer than [`LONGEST`].
    TooLong,
}

/// Reads a declaration. A text of nothing but white space and zeros is malformed.
pub fn declaration(text: &[u8]) -> Result<Declaration, NoColor> {
    if text.len() > LONGEST {
        return Err(NoColor::TooLong);
    }
    let text = end_of_text(text);
    let mut words = super::words(text);
    let color = words
        .next()
        .and_then(|word| std::str::from_utf8(word).ok())
        .and_then(Color::from_name)
        .ok_or(NoColor::Malformed)?;
    let mut reason = String::new();
    for (at, word) in words.enumerate() {
        if at == 0 && word.iter().all(u8::is_ascii_digit) {
            continue;
        }
        if !reason.is_empty() {
            reason.push(' ');
        }
        reason.push_str(&harmless(word));
    }
    Ok(Declaration { color, reason })
}

/// Makes a reason from another source as harmless and as short.
pub fn reason(text: &str) -> String {
    let words: Vec<String> = super::words(text.as_bytes()).map(harmless).collect();
    let mut reason = words.join(" ");
    // All of it is ASCII by now.
    reason.truncate(LONGEST);
    reason
}

/// Tools that set attributes end them with a zero or a line end.
fn end_of_text(text: &[u8]) -> &[u8] {
    let end = text
        .iter()
        .rposition(|&byte| byte != 0 && !byte.is_ascii_whitespace());
    &text[..end.map_or(0, |end| end + 1)]
}

fn harmless(word: &[u8]) -> String {
    let shown = |&byte: &u8| {
        if byte.is_ascii_graphic() {
            char::from(byte)
        } else {
            '?'
        }
    };
    word.iter().map(shown).collect()
}
