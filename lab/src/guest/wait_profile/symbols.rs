//! Names of the kernel's functions by address, from the text of /proc/kallsyms.

/// The functions, sorted by address.
#[derive(Debug, Default)]
pub(super) struct Symbols(Vec<(u64, String)>);

impl Symbols {
    /// Parses the table. Keeps only functions, without a compiler's suffix (`.isra.0`, `.part.0`).
    pub(super) fn parse(text: &str) -> Self {
        let mut symbols: Vec<(u64, String)> = text.lines().filter_map(function).collect();
        symbols.sort_by_key(|(address, _)| *address);
        Self(symbols)
    }

    pub(super) fn name(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        let (start, name) = self.0.get(after.checked_sub(1)?)?;
        (*start > 0).then_some(name)
    }
}

fn function(line: &str) -> Option<(u64, String)> {
    let mut fields = line.split_whitespace();
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    if !matches!(fields.next()?, "t" | "T" | "w" | "W") {
        return None;
    }
    let name = fields.next()?.split('.').next()?;
    (!name.is_empty()).then(|| (address, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_last_function_that_starts_before_it() {
        let text = "ffffffff81002000 T second\n\
                    ffffffff81001000 t first.isra.0\n\
                    ffffffff81001800 d data\n\
                    ffffffffc0000000 t inside\t[bfq]\n";
        let symbols = Symbols::parse(text);
        assert_eq!(symbols.name(0xffff_ffff_8100_0fff), None);
        assert_eq!(symbols.name(0xffff_ffff_8100_1000), Some("first"));
        assert_eq!(symbols.name(0xffff_ffff_8100_1900), Some("first"));
        assert_eq!(symbols.name(0xffff_ffff_8100_2000), Some("second"));
        assert_eq!(symbols.name(0xffff_ffff_c000_0001), Some("inside"));
    }

    #[test]
    fn hidden_addresses_name_nothing() {
        let symbols = Symbols::parse("0000000000000000 T hidden\n");
        assert_eq!(symbols.name(0xffff_ffff_8100_0000), None);
    }
}
