//! Styles: the terminal's own sixteen colors, or none; Unicode, or ASCII.
//!
//! No background is painted (the selection is reverse video), so a light terminal stays readable. No meaning
//! depends on color alone: colors of groups are letters too. `NO_COLOR` (if set and not empty) leaves bold,
//! dim and reverse.

use justitia_policy::color::Color;
use ratatui::style::{self, Modifier, Style};

/// The features that the terminal supports and the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theme {
    pub(crate) colors: bool,
    /// Block and line characters beyond ASCII.
    pub(crate) unicode: bool,
}

impl Theme {
    /// The theme for this process's environment.
    pub(crate) fn of_terminal() -> Theme {
        Theme::of(|name| std::env::var(name).ok())
    }

    /// The theme for these environment variables.
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

    /// Unicode with colors.
    #[cfg(test)]
    pub(crate) const FULL: Theme = Theme {
        colors: true,
        unicode: true,
    };

    /// For files: ASCII without colors.
    pub(crate) const PLAIN: Theme = Theme {
        colors: false,
        unicode: false,
    };

    pub(crate) fn color(self, color: Color) -> Style {
        self.paint(match color {
            Color::Green => style::Color::Green,
            Color::Yellow => style::Color::Yellow,
            Color::Red => style::Color::Red,
        })
    }

    /// For text that the user must notice.
    pub(crate) fn alarm(self) -> Style {
        self.paint(style::Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The mark of cut text.
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

/// For important numbers and heads.
pub(crate) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

/// For explanations of numbers.
pub(crate) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

/// For the selected or active item.
pub(crate) const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// The letter of a color, for terminals without color.
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
        for style in [theme.color(Color::Red), theme.alarm(), SELECTED] {
            assert_eq!((style.fg, style.bg), (None, None));
        }
        assert!(theme.alarm().add_modifier.contains(Modifier::BOLD));
        assert!(self::theme(&[("NO_COLOR", "")]).colors);
    }

    #[test]
    fn no_background_is_painted() {
        let theme = Theme::FULL;
        let styles = [
            theme.color(Color::Green),
            theme.alarm(),
            STRONG,
            FAINT,
            SELECTED,
        ];
        assert!(styles.iter().all(|style| style.bg.is_none()));
    }
}
