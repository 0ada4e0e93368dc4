//! The state that keys change: order, filter, selection, open panes. Pure; the terminal is elsewhere.
//!
//! The selection is a path, so it follows its group when the order changes. A pause shows a copy of the
//! picture. Reports are still taken meanwhile, so the history has no gap afterwards.

use justitia_report::status::Report;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::columns::Field;
use super::picture::Picture;
use super::rows::{list, Sort};
use super::theme::Theme;
use super::tree::tree;
use super::values::Row;

/// The state of the screen.
#[derive(Debug)]
pub(crate) struct App {
    live: Picture,
    frozen: Option<Picture>,
    /// The reason why the agent did not answer the last query.
    pub(crate) away: Option<String>,
    pub(crate) sort: Sort,
    /// Show only groups whose path or name contains this.
    pub(crate) filter: String,
    /// The previous filter while a new one is typed.
    typing: Option<String>,
    /// Show groups as a tree.
    pub(crate) tree: bool,
    /// Show the pane of the selected group.
    pub(crate) detail: bool,
    /// Line to which the help is scrolled; `None`: it is closed.
    pub(crate) help: Option<usize>,
    selected: Option<String>,
    /// Row of the selection, for the case that its group vanishes.
    cursor: usize,
    /// The first row on the screen.
    pub(crate) offset: usize,
    /// Rows on the screen.
    pub(crate) page: usize,
    pub(crate) theme: Theme,
}

/// The action of the loop after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Draw,
    /// Clear the screen and draw: another program wrote on it.
    Redraw,
    /// Stop in the background, as on Ctrl-Z.
    Suspend,
    Quit,
}

impl App {
    /// The state with its first report, sorted by bandwidth in descending order.
    pub(crate) fn new(report: Report, theme: Theme) -> App {
        App {
            live: Picture::new(report),
            frozen: None,
            away: None,
            sort: Sort::by(Field::Rate),
            filter: String::new(),
            typing: None,
            tree: false,
            detail: false,
            help: None,
            selected: None,
            cursor: 0,
            offset: 0,
            page: 1,
            theme,
        }
    }

    /// The picture to show: the live one, or its copy during a pause.
    pub(crate) fn picture(&self) -> &Picture {
        self.frozen.as_ref().unwrap_or(&self.live)
    }

    pub(crate) fn paused(&self) -> bool {
        self.frozen.is_some()
    }

    /// True if a filter is being typed.
    pub(crate) fn typing(&self) -> bool {
        self.typing.is_some()
    }

    /// Takes a report, or the reason why there is none; then the last picture stays.
    pub(crate) fn take(&mut self, answer: Result<Report, String>) {
        match answer {
            Ok(report) => {
                self.away = None;
                self.live.take(report);
            }
            Err(cause) => self.away = Some(cause),
        }
    }

    /// The rows in display order.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let report = &self.picture().report;
        if self.tree {
            tree(report, &self.filter, self.sort, self.theme.unicode)
        } else {
            list(report, &self.filter, self.sort)
        }
    }

    /// Index of the selected row. If the selected group vanished, the selection stays at its row.
    pub(crate) fn selected(&self, rows: &[Row]) -> usize {
        let held = self.selected.as_ref();
        held.and_then(|path| rows.iter().position(|row| row.path == *path))
            .unwrap_or(self.cursor)
            .min(rows.len().saturating_sub(1))
    }

    /// Stores the selected row's path, and scrolls to the row on a page of `page` rows.
    pub(crate) fn settle(&mut self, rows: &[Row], page: usize) -> usize {
        let at = self.selected(rows);
        self.cursor = at;
        self.selected = rows.get(at).map(|row| row.path.clone());
        self.page = page.max(1);
        let last_offset = rows.len().saturating_sub(self.page);
        let first = (at + 1).saturating_sub(self.page);
        self.offset = self.offset.clamp(first, at).min(last_offset);
        at
    }

    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Draw;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Action::Quit,
                KeyCode::Char('z') => return Action::Suspend,
                KeyCode::Char('l') => return Action::Redraw,
                KeyCode::Char('u') if self.typing() => self.filter.clear(),
                _ => {}
            }
            return Action::Draw;
        }
        if self.typing() {
            self.type_filter(key.code);
            return Action::Draw;
        }
        if let Some(line) = self.help {
            return self.help_key(key.code, line);
        }
        self.browse(key.code)
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(c) => self.filter.push(c),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Enter => self.typing = None,
            KeyCode::Esc => self.filter = self.typing.take().unwrap_or_default(),
            _ => {}
        }
    }

    fn help_key(&mut self, code: KeyCode, line: usize) -> Action {
        self.help = match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Down | KeyCode::Char('j') => Some(line + 1),
            KeyCode::Up | KeyCode::Char('k') => Some(line.saturating_sub(1)),
            KeyCode::PageDown => Some(line + self.page),
            KeyCode::PageUp => Some(line.saturating_sub(self.page)),
            _ => None,
        };
        Action::Draw
    }

    fn browse(&mut self, code: KeyCode) -> Action {
        match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = Some(0),
            KeyCode::Char('/') => self.typing = Some(self.filter.clone()),
            KeyCode::Char('s' | '>') | KeyCode::Right => self.sort_by_next(true),
            KeyCode::Char('S' | '<') | KeyCode::Left => self.sort_by_next(false),
            KeyCode::Char('r') => self.sort.reverse = !self.sort.reverse,
            KeyCode::Char('t') => self.tree = !self.tree,
            KeyCode::Char('p' | ' ') => {
                self.frozen = (!self.paused()).then(|| self.live.clone());
            }
            KeyCode::Enter | KeyCode::Char('d') => self.detail = !self.detail,
            KeyCode::Esc if self.detail => self.detail = false,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go(|at, _| at + 1),
            KeyCode::PageUp => self.go(usize::saturating_sub),
            KeyCode::PageDown => self.go(|at, page| at + page),
            KeyCode::Home | KeyCode::Char('g') => self.go(|_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.go(|_, _| usize::MAX),
            _ => {}
        }
        Action::Draw
    }

    fn sort_by_next(&mut self, forward: bool) {
        self.sort = Sort::by(self.sort.field.step(forward));
    }

    /// Selects another row: `to` maps the present row and the page size to the new row.
    fn go(&mut self, to: impl Fn(usize, usize) -> usize) {
        let rows = self.rows();
        let at = to(self.selected(&rows), self.page).min(rows.len().saturating_sub(1));
        self.cursor = at;
        self.selected = rows.get(at).map(|row| row.path.clone());
    }
}

#[cfg(test)]
mod tests;
