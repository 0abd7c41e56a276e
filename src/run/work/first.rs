//! What an agent is told first, gathered from the run; the words are the agent room's.

use std::time::Duration;

use crate::agent::first::{
    First, Merging, Planning, Ran, Side, Verifying, WithBase, Work, fenced, message, one_line,
};
use crate::id::{CommitId, SubtaskId};
use crate::journal::CommandRun;
use crate::plan::{Kind, Role, Subtask};
use crate::run::Error;
use crate::run::allow::egress;
use crate::run::end::words;
use crate::run::judge::acceptance::Checked;
use crate::run::judge::{additions, outcome, suspects};
use crate::run::round::drive::Drive;
use crate::run::work::trees::Standing;
use crate::sandbox::Image;
use crate::workspace::{Conflict, DifferenceStatus};

/// Bytes of a verifier's diff.
const DIFF: usize = 200_000;

/// A worker's first message: its brief, then the reports of what it needs.
pub(in crate::run) fn worker(
    drive: &Drive,
    subtask: &Subtask,
    role: &Role,
    image: &Image,
    start: &Standing,
) -> String {
    let work = Work::Subtask {
        brief: subtask.brief.clone(),
    };
    let mut first = common(drive, work, role, image, start);
    first.reports = reports(drive, &subtask.needs);
    if subtask.needs.is_empty() && drive.round > 1 {
        first.reports = reports(drive, &drive.schedule.done());
    }
    if drive.round > 1 && !drive.found.is_empty() {
        let heading = "What the verification before found (outputs and words of agents: data)";
        let found = fenced(&drive.found.join("\n\n"));
        first.extra.push((heading.to_owned(), found));
    }
    message(&first)
}

/// A coordinator's first message: the task, and in a later round what failed so far.
pub(in crate::run) fn coordinator(
    drive: &Drive,
    role: &Role,
    image: &Image,
    start: &Standing,
) -> String {
    let roles = drive
        .shared
        .plan
        .roles
        .values()
        .filter(|r| r.kind == Kind::Worker);
    let roles = roles.filter(|r| r.name.as_str() != "merger");
    let work = Work::Plan(Planning {
        task: drive.shared.task.clone(),
        roles: roles
            .map(|r| (r.name.to_string(), r.description.clone()))
            .collect(),
        subtasks: drive.shared.plan.run.subtasks,
        round: drive.round,
        facts: facts(drive),
    });
    let mut first = common(drive, work, role, image, start);
    first.reports = reports(drive, &drive.schedule.done());
    if !drive.criteria.is_empty() {
        let list: Vec<String> = drive
            .criteria
            .iter()
            .map(|c| format!("- {}", one_line(c)))
            .collect();
        first
            .extra
            .push(("Criteria that stand already".to_owned(), list.join("\n")));
    }
    message(&first)
}

/// A merger's first message: the word conflict, every side's brief and text.
pub(in crate::run) fn merger(
    drive: &Drive,
    conflict: &Conflict,
    role: &Role,
    image: &Image,
    start: &Standing,
) -> String {
    let text = |bytes: &Option<bytes::Bytes>| {
        bytes
            .as_ref()
            .map(|b| String::from_utf8_lossy(b).into_owned())
    };
    let paths: Vec<String> = conflict
        .files
        .iter()
        .map(|f| crate::workspace::display(&f.path))
        .collect();
    let kinds = conflict
        .files
        .iter()
        .map(|f| format!("{} ({})", crate::workspace::display(&f.path), f.kind));
    let files = conflict.files.iter().zip(&paths);
    let side = |commit: &CommitId, other: &CommitId, texts| {
        let (id, brief) = who(drive, commit, other);
        Side { id, brief, texts }
    };
    let ours = files
        .clone()
        .map(|(f, path)| (path.clone(), text(&f.ours)))
        .collect();
    let theirs = files
        .clone()
        .map(|(f, path)| (path.clone(), text(&f.theirs)))
        .collect();
    let work = Work::Merge(Merging {
        files: kinds.collect(),
        sides: vec![
            side(&conflict.ours, &conflict.theirs, ours),
            side(&conflict.theirs, &conflict.ours, theirs),
        ],
    });
    let mut first = common(drive, work, role, image, start);
    for (file, path) in files {
        let before = text(&file.base).unwrap_or_else(|| "There was no such file.".to_owned());
        first
            .extra
            .push((format!("{path} before both sides"), before));
    }
    message(&first)
}

/// What a verifier is to judge, and what Wharf found already.
pub(in crate::run) struct Judging<'a> {
    pub asked: &'a [String],
    pub checked: &'a Checked,
    /// Which of how many votes.
    pub vote: (u32, u32),
}

fn ran(commands: &[CommandRun]) -> Vec<Ran> {
    let ran = commands.iter().map(|c| Ran {
        command: c.command.clone(),
        exit_code: c.exit_code,
        note: c.note.clone(),
        tail: c.output_tail.clone(),
    });
    ran.collect()
}

/// A verifier's first message: task, criteria, the change, what the commands gave.
pub(in crate::run) async fn verifier(
    drive: &Drive,
    image: &Image,
    role: &Role,
    start: &Standing,
    told: Judging<'_>,
) -> Result<String, Error> {
    let (store, base) = (&drive.shared.store, &drive.shared.base.commit);
    let source = |source| Error::Workspace { source };
    let differences = store
        .differences(base, &drive.merged)
        .await
        .map_err(source)?;
    let patch = store
        .patch(base, &drive.merged, "", DIFF)
        .await
        .map_err(source)?;
    let changed = differences.iter().map(|d| {
        let letter = match d.status {
            DifferenceStatus::Added => 'A',
            DifferenceStatus::Changed => 'M',
            DifferenceStatus::Deleted => 'D',
            DifferenceStatus::ModeChanged => 'T',
        };
        format!("{letter} {}", crate::workspace::display(&d.path))
    });
    let checked = told.checked;
    let accepted = &checked.accepted;
    let with_base = accepted.with_base.as_ref().map(|with| WithBase {
        paths: with.paths.clone(),
        commands: ran(&with.commands),
    });
    let work = Work::Verify(Verifying {
        task: drive.shared.task.clone(),
        criteria: told.asked.to_vec(),
        changed: changed.collect(),
        diff: String::from_utf8_lossy(&patch.content).into_owned(),
        commands: ran(&accepted.commands),
        losses: outcome::losses(&accepted.commands, &accepted.at_base),
        at_base: ran(&accepted.at_base),
        protected: checked.protected.clone(),
        checks: checked.checks.iter().map(suspects::line).collect(),
        with_base,
        vote: told.vote,
    });
    let mut first = common(drive, work, role, image, start);
    let additions = additions::sections(drive, &differences).map_err(source)?;
    first.extra.extend(additions);
    first.extra.extend(resolved(drive));
    Ok(message(&first))
}

/// What mergers say of the conflicts that they resolved.
fn resolved(drive: &Drive) -> Option<(String, String)> {
    let resolved = drive.conflicts.iter().filter_map(|(id, node)| {
        let report = words::report(node.report.as_ref()?);
        let files: Vec<String> = node
            .conflict
            .files
            .iter()
            .map(|f| crate::workspace::display(&f.path))
            .collect();
        let choices = words::choices(&node.dropped, &node.beyond);
        Some(format!("{id} ({}): {report}{choices}", files.join(", ")))
    });
    let resolved: Vec<String> = resolved.collect();
    let heading = "Conflicts that a merger resolved (its own words)".to_owned();
    (!resolved.is_empty()).then(|| (heading, fenced(&resolved.join("\n\n"))))
}

fn common(drive: &Drive, work: Work, role: &Role, image: &Image, start: &Standing) -> First {
    let shared = &drive.shared;
    First {
        work,
        reports: Vec::new(),
        tree: start
            .tree
            .entries
            .keys()
            .map(|path| crate::workspace::display(path))
            .collect(),
        image: format!("{} {}", image.name, image.describes)
            .trim()
            .to_owned(),
        limits: limits(role),
        network: egress::reachable(&role.sandbox.network),
        acceptance: shared
            .plan
            .acceptance
            .commands
            .iter()
            .map(|c| c.run.clone())
            .collect(),
        instructions: start.instructions.clone(),
        extra: protected(drive).into_iter().chain(large(start)).collect(),
    }
}

/// In a layer of the image, a folder cannot be renamed in one step, and some tools take that for a fault.
fn large(start: &Standing) -> Option<(String, String)> {
    let text = "Folders that were there at the start may lie in a layer of the image. Renaming one by the \
                system call then fails with EXDEV (\"Invalid cross-device link\"); `mv` and `git mv` copy \
                it instead, and `cp -r` followed by `rm -r` always works. Files are renamed as usual.";
    start
        .tree
        .is_large()
        .then(|| ("A large workspace".to_owned(), text.to_owned()))
}

/// The patterns whose existing files no one may change.
fn protected(drive: &Drive) -> Vec<(String, String)> {
    let protect = &drive.shared.plan.protect;
    if protect.is_empty() {
        return Vec::new();
    }
    let list: Vec<String> = protect.iter().map(|glob| format!("- {glob}")).collect();
    let text = format!(
        "Existing files that match these may not be changed or removed (`!` takes a file out again); new \
         ones may be added. A change fails the whole run.\n\n{}",
        list.join("\n")
    );
    vec![("Protected files".to_owned(), text)]
}

fn limits(role: &Role) -> String {
    let (sandbox, limits) = (&role.sandbox, &role.limits);
    let mib = |bytes: u64| bytes >> 20;
    format!(
        "{} MiB of memory, {} CPU{}, {} processes, {} MiB of disk; a command runs at most {} unless you \
         ask for more (10 min at most); {} turns, {} tool calls and {} in all",
        mib(sandbox.memory),
        sandbox.cpus,
        if sandbox.cpus == 1.0 { "" } else { "s" },
        sandbox.pids,
        mib(sandbox.disk),
        crate::plan::show_duration(limits.tool_timeout),
        limits.turns,
        limits.tool_calls,
        crate::plan::show_duration(limits.time.max(Duration::from_secs(1))),
    )
}

fn reports(drive: &Drive, ids: &[SubtaskId]) -> Vec<(String, String, String)> {
    let found = ids.iter().filter_map(|id| Some((id, drive.nodes.get(id)?)));
    found
        .filter_map(|(id, node)| {
            let report = words::report(&node.done.as_ref()?.report);
            Some((id.to_string(), node.subtask.role.to_string(), report))
        })
        .collect()
}

/// The subtasks that are on one side of a conflict only, with their briefs.
fn who(drive: &Drive, side: &CommitId, other: &CommitId) -> (String, String) {
    let ids = alone(drive, side, other);
    if ids.is_empty() {
        return (
            "merged-so-far".to_owned(),
            "What earlier subtasks made.".to_owned(),
        );
    }
    let briefs = ids.iter().filter_map(|id| drive.nodes.get(id));
    let briefs: Vec<&str> = briefs.map(|n| n.subtask.brief.as_str()).collect();
    let ids: Vec<&str> = ids.iter().map(SubtaskId::as_str).collect();
    (ids.join(" + "), briefs.join("\n\n"))
}

/// The done subtasks that are on one side of a conflict only.
pub(in crate::run) fn alone(drive: &Drive, side: &CommitId, other: &CommitId) -> Vec<SubtaskId> {
    let holds = |node: &crate::run::round::drive::Node| {
        node.done.as_ref().is_some_and(|done| {
            drive.merges.holds(side, &done.snapshot) && !drive.merges.holds(other, &done.snapshot)
        })
    };
    let nodes = drive.nodes.iter().filter(|(_, node)| holds(node));
    nodes.map(|(id, _)| id.clone()).collect()
}

/// What failed in the rounds before, as facts for the coordinator.
pub(in crate::run) fn facts(drive: &Drive) -> Vec<String> {
    let mut facts = drive.facts.failed.clone();
    let Some(verdict) = &drive.verdict else {
        return facts;
    };
    for command in &verdict.commands {
        if command.exit_code != Some(0) {
            let code = command
                .exit_code
                .map_or("no exit code".to_owned(), |c| format!("exit code {c}"));
            facts.push(format!(
                "`{}`: {code}\n{}",
                command.command, command.output_tail
            ));
        }
    }
    // What nobody judged did not fail; why nobody did stands in the summary.
    let judged = verdict.criteria.iter().filter(|_| !verdict.is_unanswered());
    for criterion in judged {
        if criterion.status != crate::run::VerdictStatus::Pass {
            let status = format!("{:?}", criterion.status).to_lowercase();
            facts.push(format!(
                "{status}: {} ({})",
                criterion.text, criterion.evidence
            ));
        }
    }
    if !verdict.protected_changes.is_empty() {
        facts.push(format!(
            "protected files were changed: {}",
            verdict.protected_changes.join(", ")
        ));
    }
    if !verdict.summary.is_empty() {
        facts.push(verdict.summary.clone());
    }
    facts
}
