//! Tests that keys do what the help says, and that the selection survives all changes of the groups.

use super::super::tests::{many, press, report};
use super::*;

fn app(groups: usize) -> App {
    App::new(many(groups), Theme::PLAIN)
}

fn selected(app: &App) -> String {
    let rows = app.rows();
    rows[app.selected(&rows)].path.clone()
}

fn shown(app: &App) -> Vec<String> {
    app.rows().into_iter().map(|row| row.path).collect()
}

#[test]
fn the_selection_follows_its_group_when_the_order_changes() {
    let mut app = app(9);
    press(&mut app, "jjj");
    let group = selected(&app);
    press(&mut app, "rsst");
    assert_eq!(selected(&app), group);
}

#[test]
fn a_selected_group_that_vanishes_leaves_the_selection_at_its_place() {
    let mut app = app(9);
    press(&mut app, "jj");
    let before = shown(&app);
    let mut next = many(9);
    next.groups.retain(|group| group.path != before[2]);
    app.take(Ok(next));
    assert_eq!(selected(&app), before[3]);
    app.take(Ok(report(Vec::new())));
    let rows = app.rows();
    assert_eq!(app.settle(&rows, 5), 0);
    press(&mut app, "jkG");
    app.take(Ok(many(2)));
    assert!(app.selected(&app.rows()) < 2);
}

#[test]
fn the_selected_row_is_always_on_the_page() {
    let mut app = app(50);
    for keys in ["G", "kkkkkkkkkkkk", "g", "jjjjjjjjjjjj", "r"] {
        press(&mut app, keys);
        let rows = app.rows();
        let at = app.settle(&rows, 7);
        assert!((app.offset..app.offset + 7).contains(&at), "{keys}");
        assert!(app.offset + 7 <= rows.len(), "{keys}: no blank rows");
    }
}

#[test]
fn a_filter_is_typed_kept_and_taken_back() {
    let mut app = app(20);
    press(&mut app, "/group-1q");
    assert!(app.typing() && shown(&app).is_empty());
    app.key(KeyCode::Backspace.into());
    assert_eq!(shown(&app).len(), 11);
    app.key(KeyCode::Enter.into());
    assert!(!app.typing());
    press(&mut app, "/x");
    app.key(KeyCode::Esc.into());
    assert_eq!(app.filter, "group-1");
    app.key(KeyCode::Esc.into());
    assert_eq!(shown(&app).len(), 20);
}

#[test]
fn a_pause_keeps_the_picture_and_loses_nothing() {
    let mut app = app(1);
    press(&mut app, "p");
    for tick in 100..110 {
        let mut next = many(1);
        next.ticks_total = tick;
        app.take(Ok(next));
    }
    assert_ne!(app.picture().report.ticks_total, 109);
    press(&mut app, " ");
    assert_eq!(app.picture().report.ticks_total, 109);
    let id = app.picture().report.groups[0].id;
    assert_eq!(app.picture().past(id).unwrap().rate.last(99).len(), 11);
}

#[test]
fn without_an_agent_the_last_picture_stays() {
    let mut app = app(3);
    app.take(Err("it went away".into()));
    assert_eq!(
        (app.away.as_deref(), shown(&app).len()),
        (Some("it went away"), 3)
    );
    app.take(Ok(many(4)));
    assert_eq!((app.away.as_deref(), shown(&app).len()), (None, 4));
}

#[test]
fn it_ends_with_q_and_ctrl_c_whatever_is_open() {
    let ctrl = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    for keys in ["", "?", "/", "d", "p"] {
        let mut app = app(3);
        press(&mut app, keys);
        assert_eq!(app.key(ctrl('c')), Action::Quit, "{keys}");
        if keys != "/" {
            assert_eq!(app.key(KeyCode::Char('q').into()), Action::Quit, "{keys}");
        }
    }
    assert_eq!(app(1).key(ctrl('z')), Action::Suspend);
}
