//! The table of docs/sandbox.md: what each row of the battery came to, a column a runtime.
//!
//! An ordinary run compares what it saw with the page; with `WHARF_WRITE_BATTERY=1` it writes the
//! page instead. Tests run at once, so each writes its own row under a lock.

#![expect(
    clippy::disallowed_methods,
    reason = "tests ask the environment whether the page is to be written"
)]

use std::path::{Path, PathBuf};

use super::data::{ROWS, Row, Wanted};

const BEGIN: &str =
    "<!-- battery: begin; written by WHARF_WRITE_BATTERY=1 cargo test --test it battery:: -->\n";
const END: &str = "<!-- battery: end -->\n";
const HEAD: &str = "| # | abuse | under runc | under runsc (gVisor) |\n|---|---|---|---|\n";

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sandbox.md")
}

/// The page before, in and after the table.
fn parts(page: &str) -> (&str, &str, &str) {
    let from = page.find(BEGIN).expect("the table's begin") + BEGIN.len();
    let to = page.find(END).expect("the table's end");
    (&page[..from], &page[from..to], &page[to..])
}

/// The cells of a row of the table: runc's, then runsc's.
fn cells(table: &str, number: u8) -> Option<[String; 2]> {
    let begin = format!("| {number} | ");
    let line = table.lines().find(|line| line.starts_with(&begin))?;
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    let [_, _, runc, runsc] = cells.as_slice() else {
        panic!("row {number} has {} cells", cells.len());
    };
    Some([(*runc).to_owned(), (*runsc).to_owned()])
}

/// What stands in a cell until somebody has tried it.
fn untried(row: &Row) -> String {
    match row.runsc {
        Wanted::Is(words) => format!("not tried; expected: {words}"),
        Wanted::Same => "not tried; expected: the same".to_owned(),
        Wanted::Unknown => "not tried".to_owned(),
    }
}

/// Compares what was seen with the page, or writes it there.
pub fn settle(row: &Row, runtime: &str, seen: &str) {
    let column = usize::from(runtime == "runsc");
    if std::env::var("WHARF_WRITE_BATTERY").as_deref() == Ok("1") {
        return write(row, column, seen);
    }
    let page = std::fs::read_to_string(path()).unwrap();
    let told = cells(parts(&page).1, row.number);
    assert_eq!(
        told.map(|cells| cells[column].clone()).as_deref(),
        Some(seen),
        "row {} of docs/sandbox.md",
        row.number
    );
}

fn write(row: &Row, column: usize, seen: &str) {
    let lock = std::fs::File::open(path()).unwrap();
    lock.lock().unwrap();
    let page = std::fs::read_to_string(path()).unwrap();
    let (before, table, after) = parts(&page);
    let mut text = HEAD.to_owned();
    for one in &ROWS {
        let mut told =
            cells(table, one.number).unwrap_or_else(|| ["not tried".to_owned(), untried(one)]);
        if one.number == row.number {
            told[column] = seen.to_owned();
        }
        let [runc, runsc] = told;
        text.push_str(&format!(
            "| {} | {} | {runc} | {runsc} |\n",
            one.number, one.what
        ));
    }
    // In place, so that the lock that others wait for is on the same file.
    std::fs::write(path(), format!("{before}{text}{after}")).unwrap();
}

/// The page has every row and no other, in the words of the data; what was seen is what is wanted.
#[test]
fn the_page_holds_the_table() {
    let page = std::fs::read_to_string(path()).unwrap();
    let (_, table, _) = parts(&page);
    let body = table.strip_prefix(HEAD).expect("the table's head");
    assert_eq!(body.lines().count(), ROWS.len());
    for (at, (row, line)) in ROWS.iter().zip(body.lines()).enumerate() {
        assert_eq!(usize::from(row.number), at + 1);
        let begin = format!("| {} | {} | {} | ", row.number, row.what, row.runc);
        assert!(line.starts_with(&begin), "{line}\n{begin}");
    }
}
