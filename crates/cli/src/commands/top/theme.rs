//! How things look: the terminal's own sixteen colors, or none; Unicode, or ASCII.
//!
//! No background is ever painted (selection is reverse video), so a light terminal stays readable,
//! and no meaning hangs on a color alone: colors of groups are letters too. `NO_COLOR` (when set
//! and not empty) leaves bold, dim and reverse.

use justitia_policy::color::Color;
use ratatui::style::{self, Modifier, Style};

/// What the terminal can show and its user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theme {
    /// Colors.
    pub(crate) colors: bool,
    /// Blocks and lines beyond ASCII.
    pub(crate) unicode: bool,
}

impl Theme {
    /// What the environment says.
    pub(crate) fn of_terminal() -> Theme {
        Theme::of(|name| std::env::var(name).ok())
    }

    /// What these variables say.
    fn of(variable: impl Fn(&str) -> Option<String>) -> Theme {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        Theme {
            colors: set("NO_COLOR").is_none(),
            unicode: locale.is_some_and(|locale| {
                let locale = locale.to_ascii_lowercase();
                locale.contains("utf-8") || locale.contains("utf8")
            }),
        }
    }

    /// For files: ASCII without colors.
    pub(crate) fn plain() -> Theme {
        Theme {
            colors: false,
            unicode: false,
        }
    }

    /// The style of a group's color.
    pub(crate) fn color(self, color: Color) -> Style {
        self.paint(match color {
            Color::Green => style::Color::Green,
            Color::Yellow => style::Color::Yellow,
            Color::Red => style::Color::Red,
        })
    }

    /// What the reader must see.
    pub(crate) fn alarm(self) -> Style {
        self.paint(style::Color::Red).add_modifier(Modifier::BOLD)
    }

    /// What stands for text that was cut.
    pub(crate) fn ellipsis(self) -> char {
        if self.unicode {
            '…'
        } else {
            '~'
        }
    }

    fn paint(self, color: style::Color) -> Style {
        if self.colors {
            Style::new().fg(color)
        } else {
            Style::new()
        }
    }
}

/// A number that matters, a head.
pub(crate) fn strong() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// What explains a number.
pub(crate) fn faint() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// What is selected, or in force.
pub(crate) fn selected() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// The letter of a color: meaning without color.
pub(crate) fn letter(color: Option<Color>) -> &'static str {
    match color {
        None => "-",
        Some(Color::Green) => "G",
        Some(Color::Yellow) => "Y",
        Some(Color::Red) => "R",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn theme(variables: &[(&str, &str)]) -> Theme {
        Theme::of(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn blocks_need_a_utf8_locale_and_the_strongest_variable_decides() {
        assert!(theme(&[("LANG", "de_DE.UTF-8")]).unicode);
        assert!(theme(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]).unicode);
        assert!(!theme(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]).unicode);
        assert!(!theme(&[]).unicode);
    }

    #[test]
    fn no_color_means_no_color_but_not_no_emphasis() {
        let theme = theme(&[("NO_COLOR", "1")]);
        for style in [theme.color(Color::Red), theme.alarm(), selected()] {
            assert_eq!((style.fg, style.bg), (None, None));
        }
        assert!(theme.alarm().add_modifier.contains(Modifier::BOLD));
        assert!(self::theme(&[("NO_COLOR", "")]).colors);
    }

    #[test]
    fn no_background_is_painted() {
        let theme = Theme {
            colors: true,
            unicode: true,
        };
        let styles = [
            theme.color(Color::Green),
            theme.alarm(),
            strong(),
            faint(),
            selected(),
        ];
        assert!(styles.iter().all(|style| style.bg.is_none()));
    }
}
