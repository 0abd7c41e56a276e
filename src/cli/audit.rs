//! `wharf log --check`: whether all that a run recorded is still there and is what was written.

use std::path::Path;

use serde_json::Value;

use super::fault::Fault;
use super::find::Found;
use super::{out, text};
use crate::journal::{self, Event, Line, Read};
use crate::ops::Held;

/// Findings of one kind that are printed.
const SHOWN: usize = 5;

/// What is wrong.
#[derive(Default)]
struct Findings {
    /// What is not as it was written.
    damaged: Vec<String>,
    /// What may be missing and leaves no trace of that.
    untold: Vec<String>,
}

/// Checks the journal's lines, the outputs beside it and the files that were made from it. Exit code 1
/// for what was changed, 4 for what cannot be told.
pub fn check(found: &Found) -> Result<i32, Fault> {
    // Asked before reading: a run that goes on meanwhile is not yet at its end.
    let held = crate::ops::held(&found.dir);
    let read = match journal::read(&found.journal()) {
        Ok(read) => read,
        Err(error @ journal::Error::Damaged { .. }) => {
            out::print(&format!("damaged: {error}\n{}", saved(&error)))?;
            return Ok(1);
        }
        Err(error) => return Err(error.into()),
    };
    let mut findings = Findings::default();
    let outputs = beside(found, &read.lines, &mut findings);
    made(found, &read.lines, held, &mut findings);
    tell(&read, outputs, &findings)
}

fn tell(read: &Read, outputs: usize, findings: &Findings) -> Result<i32, Fault> {
    for (word, said) in [
        ("damaged", &findings.damaged),
        ("could not tell", &findings.untold),
    ] {
        for line in said.iter().take(SHOWN) {
            out::print(&format!("{word}: {}", text::line(line, 600)))?;
        }
        if said.len() > SHOWN {
            out::print(&format!("{word}: and {} more", said.len() - SHOWN))?;
        }
    }
    let torn = match read.torn {
        0 => String::new(),
        torn => format!(", {torn} bytes of an unfinished last line that no reader counts"),
    };
    let beside = match outputs {
        0 => String::new(),
        outputs => format!(", {} beside it", text::plural(outputs, "output")),
    };
    let whole = format!("{} events{beside}{torn}", read.lines.len());
    if !findings.damaged.is_empty() {
        out::print(&format!("the journal's lines are whole: {whole}"))?;
        return Ok(1);
    }
    if !findings.untold.is_empty() {
        out::print(&format!("what is there is whole: {whole}"))?;
        return Ok(4);
    }
    out::print(&format!("ok: {whole}"))?;
    Ok(0)
}

/// What of a damaged journal can still be used.
fn saved(error: &journal::Error) -> String {
    match error {
        journal::Error::Damaged { line, .. } if *line > 1 => format!(
            "lines 1 to {} are whole: `wharf log` prints them; the run cannot go on from them",
            line - 1
        ),
        _ => "nothing of it can be used".to_owned(),
    }
}

/// Reads every large output that a line names; gives how many there are.
fn beside(found: &Found, lines: &[Line], findings: &mut Findings) -> usize {
    let results = lines.iter().flat_map(|line| match &line.event {
        Event::TurnDone { results, .. } => results.as_slice(),
        _ => &[],
    });
    let named: Vec<&Value> = results.filter(|r| r["text_file"].is_string()).collect();
    for result in &named {
        if let Err(error) = journal::whole(&found.dir, result) {
            findings.damaged.push(error.to_string());
        }
    }
    named.len()
}

/// Compares result.json and report.md with what the journal says they are.
fn made(found: &Found, lines: &[Line], held: Held, findings: &mut Findings) {
    let result = std::fs::read_to_string(found.dir.join("result.json")).ok();
    let Some(remade) = crate::run::remade(lines, &found.dir) else {
        if result.is_some() && held == Held::No {
            findings.untold.push(
                "result.json tells of an end and the journal of none: its last lines are missing, or the run \
                 died while it wrote them"
                    .to_owned(),
            );
        }
        return;
    };
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    if let Some(text) = result
        && parsed(&text) != parsed(&remade.result)
    {
        findings
            .damaged
            .push("result.json is not what the journal's last line holds".to_owned());
    }
    let report = std::fs::read_to_string(found.dir.join("report.md")).ok();
    if report.is_some_and(|text| text != remade.report) {
        let said = "report.md is not what this wharf makes of the journal";
        match is_ours(lines) {
            true => findings.damaged.push(said.to_owned()),
            false => findings
                .untold
                .push(format!("{said}, and another version wrote it")),
        }
    }
}

/// True when this version of wharf wrote the run's end.
fn is_ours(lines: &[Line]) -> bool {
    let version = lines.iter().rev().find_map(|line| match &line.event {
        Event::Resumed { wharf_version, .. } => Some(wharf_version),
        Event::RunStarted(started) => Some(&started.wharf_version),
        _ => None,
    });
    version.is_some_and(|version| version == env!("CARGO_PKG_VERSION"))
}

/// report.md as it is made from a run's journal alone.
pub fn report(lines: &[Line], dir: &Path) -> Result<String, Fault> {
    let remade = crate::run::remade(lines, dir);
    remade.map(|remade| remade.report).ok_or_else(|| {
        Fault::usage("the run has no end yet, and so no report")
            .hint("`wharf show` without --report says how far it came")
    })
}
