//! Tests that columns fit every width, and that every cell fits its column.

use super::super::format;
use super::super::rows::{list, Sort};
use super::super::tests::{group, many, report, unknown};
use super::super::theme::Theme;
use super::super::values::{cache, cell, values, Values};
use super::*;

const BY_NAME: Sort = Sort::by(Field::Group);

fn total(columns: &[Column], gap: usize) -> usize {
    let widths: usize = columns.iter().map(|column| column.width).sum();
    widths + gap * (columns.len() - 1)
}

fn has(width: usize, field: Field) -> bool {
    let (columns, _) = layout(width, 24);
    columns.iter().any(|column| column.field == field)
}

#[test]
fn the_columns_fit_every_width() {
    for width in 1..400 {
        for longest in [0, 3, 16, 80, 500] {
            let (columns, gap) = layout(width, longest);
            assert!(total(&columns, gap) <= width, "{width} {longest}");
            assert_eq!(columns[0].field, Field::Group);
        }
    }
}

#[test]
fn a_wider_screen_never_shows_fewer_columns() {
    let count = |width| layout(width, 24).0.len();
    for width in (1..400).filter(|&width| width != ROOMY) {
        assert!(count(width) >= count(width - 1), "{width}");
    }
    assert_eq!(count(260), Field::ALL.len());
}

#[test]
fn the_main_fields_fit_eighty_columns_and_all_requested_ones_a_hundred_and_twenty() {
    for field in [
        Field::Color,
        Field::Weight,
        Field::Cache,
        Field::Rate,
        Field::OfIdeal,
        Field::Hits,
        Field::Stall,
    ] {
        assert!(has(80, field), "{field:?}");
    }
    for field in &Field::ALL[..13] {
        assert!(has(120, *field) || *field == Field::ShareBar, "{field:?}");
    }
    for field in [Field::Color, Field::Rate, Field::OfIdeal] {
        assert!(has(40, field), "{field:?}");
    }
}

#[test]
fn every_cell_is_exactly_as_wide_as_its_column() {
    let mut odd = group("/app/数据库/with/a/very/long/path/indeed", 10_000);
    odd.file_bytes = Some(u64::MAX);
    odd.verdict.as_mut().unwrap().gain = 1e9;
    odd.verdict.as_mut().unwrap().bytes_per_s = Some(1e18);
    for report in [report(vec![odd]), many(3), unknown()] {
        for row in list(&report, "", BY_NAME) {
            for width in [12, 40, 80, 120, 250] {
                let (columns, _) = layout(width, format::width(&row.label));
                for column in columns {
                    let (text, _) = cell(&row, column, Theme::FULL, 1.0);
                    assert_eq!(
                        format::width(&text),
                        column.width,
                        "{:?} {text:?}",
                        column.field
                    );
                }
            }
        }
    }
}

#[test]
fn the_letter_of_a_color_is_there_with_and_without_colors() {
    let row = &list(&many(1), "", BY_NAME)[0];
    let column = Column {
        field: Field::Color,
        width: 1,
    };
    for theme in [Theme::FULL, Theme::PLAIN] {
        let (text, style) = cell(row, column, theme, 1.0);
        assert!(["G", "Y", "R"].contains(&text.as_str()), "{text}");
        assert_eq!(style.fg.is_some(), theme.colors);
    }
}

#[test]
fn ends_of_paths_and_beginnings_of_names_are_kept() {
    let mut row = list(&many(1), "", BY_NAME).remove(0);
    let column = Column {
        field: Field::Group,
        width: 6,
    };
    row.label = "/app/abcdef".into();
    assert_eq!(cell(&row, column, Theme::FULL, 1.0).0, "…bcdef");
    row.label = "├ abcdef".into();
    assert_eq!(cell(&row, column, Theme::FULL, 1.0).0, "├ abc…");
}

#[test]
fn the_bar_of_a_group_above_a_threshold_of_nothing_is_full() {
    let values = |file, threshold| {
        let mut values = Values {
            threshold,
            ..Values::default()
        };
        values.numbers[Field::Cache as usize] = file;
        values
    };
    let bar = |values: &Values| cache(values, 20, Theme::FULL);
    assert!(bar(&values(Some(5.0), Some(0.0))).starts_with("███████»"));
    assert!(bar(&values(Some(0.0), Some(0.0))).starts_with("········"));
    assert!(bar(&values(None, Some(5.0))).starts_with("        "));
    assert!(bar(&values(Some(5.0), None)).ends_with("5B/-"));
}

#[test]
fn no_limit_sorts_above_every_limit() {
    let low = |now: &str| {
        let mut one = group("/app/db", 100);
        now.clone_into(&mut one.knobs[0].now);
        values(&report(vec![one]))[0].number(Field::Low)
    };
    assert!(low("max") > low("18446744073709551615"));
    assert_eq!(values(&unknown())[0].number(Field::Low), None);
}

#[test]
fn columns_are_in_the_order_of_their_fields_and_each_has_a_rank() {
    assert_eq!(
        Field::ALL.map(|field| field as usize),
        std::array::from_fn(|at| at)
    );
    let mut ranks = Field::ALL.map(|field| field.about().rank);
    ranks.sort_unstable();
    assert_eq!(ranks, std::array::from_fn(|at| at));
}

#[test]
fn one_can_step_through_all_columns_and_back() {
    let mut field = Field::Group;
    for _ in 0..Field::ALL.len() {
        assert_eq!(field.step(true).step(false), field);
        field = field.step(true);
    }
    assert_eq!(field, Field::Group);
}
