//! result.json and report.md as the journal alone has them: what a run writes at its end, and what can
//! be made again at any later time.

use std::path::Path;

use serde_json::Value;

use crate::journal::{Line, State, Writer};
use crate::run::Summary;
use crate::run::end::{report, result};

/// Decimal digits of a figure: with more of them a number that is written and read again may be
/// another one in its last digit.
const DECIMALS: f64 = 1e9;

/// The two files of a run that came to an end.
pub struct Remade {
    /// result.json.
    pub result: String,
    /// report.md.
    pub report: String,
}

/// Makes both from the lines of a journal; None for a run that has no end yet, or no longer.
pub fn remade(lines: &[Line], dir: &Path) -> Option<Remade> {
    let state = State::of(lines);
    let ended = state.ended.as_ref()?;
    // A run that could not begin has no result in its last line.
    let summary = serde_json::from_value(ended.result.clone());
    let summary: Summary = summary.unwrap_or_else(|_| result::of(&state, dir));
    Some(files(&summary, &ended.result))
}

/// What the journal will hold of a result: without secrets, its figures as they are read back.
pub(in crate::run) fn journaled(summary: &Summary, journal: &Writer) -> (Summary, Value) {
    let mut value = serde_json::to_value(summary).unwrap_or_default();
    journal.mask(&mut value);
    round(&mut value);
    let read = serde_json::from_value(value.clone());
    (read.unwrap_or_else(|_| summary.clone()), value)
}

/// Both files of a result; `value` is the same as JSON.
pub(in crate::run) fn files(summary: &Summary, value: &Value) -> Remade {
    let mut result = serde_json::to_string_pretty(value).unwrap_or_default();
    result.push('\n');
    Remade {
        result,
        report: report::markdown(summary),
    }
}

fn round(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let exact = number.as_f64().unwrap_or_default();
            *value = ((exact * DECIMALS).round() / DECIMALS).into();
        }
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_figure_is_read_back_as_it_was_written(seconds in 0.0..1e6_f64) {
            let mut value = Value::from(seconds);
            round(&mut value);
            let again: Value = serde_json::from_str(&value.to_string()).unwrap();
            prop_assert_eq!(again, value);
        }
    }
}
