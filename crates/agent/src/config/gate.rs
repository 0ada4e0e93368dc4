//! The section `[gate]`: the kernel module's gate.

use justitia_cgroup::gate::Order;

use super::{unknown_word, Section, Source};
use crate::error::Result;

const KEYS: [&str; 3] = ["enabled", "order", "aging"];
const AGING_MOST: i64 = 10_000;

/// What an operator decides about the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateSettings {
    /// Hold it, in the modes that know weights (`justitia`, `proportional`).
    pub enabled: bool,
    /// In which order writers wait.
    pub order: Order,
    /// With order `aging`, what a waiter gains when it is passed over, 1 to 10000.
    pub aging: u32,
}

impl Default for GateSettings {
    fn default() -> Self {
        GateSettings {
            enabled: false,
            order: Order::default(),
            // The paper's.
            aging: 100,
        }
    }
}

impl Source<'_> {
    pub(super) fn gate(&self, section: &Section) -> Result<GateSettings> {
        let mut gate = GateSettings::default();
        for (key, value) in section {
            match key.get_ref().as_str() {
                "enabled" => gate.enabled = self.typed(key, value, "true or false")?,
                "order" => {
                    let word: String = self.typed(key, value, "a word in quotes")?;
                    let known = Order::ALL.into_iter().find(|order| order.name() == word);
                    gate.order = known.ok_or_else(|| {
                        let names = Order::ALL.map(Order::name);
                        let (cause, remedy) = unknown_word("order", &word, &names);
                        self.error(&value.span(), &cause, &remedy)
                    })?;
                }
                "aging" => {
                    let number = value.get_ref().as_integer();
                    let number = number.filter(|number| (1..=AGING_MOST).contains(number));
                    gate.aging = number.ok_or_else(|| {
                        let cause =
                            format!("aging {} is not a number from 1 to 10000", value.get_ref());
                        self.error(
                            &value.span(),
                            &cause,
                            "use 100, the paper's, or leave it out",
                        )
                    })? as u32;
                }
                unknown => return Err(self.unknown_key(key, unknown, &KEYS)),
            }
        }
        Ok(gate)
    }
}
