//! `wharf show`: one run, finished or not.

use console::style;
use serde_json::json;

use super::fault::Fault;
use super::find::{self, Found};
use super::request::{self, Which};
use super::story::{Conversation, Node, Story};
use super::text::{self, Answers};
use super::{audit, judged, out, result, state, turns, wording};
use crate::journal::{self, Egress, Line};
use crate::ops::Held;
use crate::run::Summary;

/// Show a run: its subtasks, what each did and cost, and the verdict with its evidence
///
/// Works while the run goes on and after a crash too: everything comes from the run's journal.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  wharf show last\n  wharf show last fix\n  wharf show last fix --request 3"
)]
pub struct Args {
    /// A run's id, the beginning of one, or `last`
    run: String,
    /// An agent of the run, to see turn by turn: a subtask's id, `coordinator`, `verifier`, or
    /// `summary` for the run's own
    agent: Option<String>,
    /// Print what that agent sent to its model: its N-th call, or `summary-N` for a summary of its
    /// conversation. Known secret values are masked
    #[arg(long, value_name = "N", requires = "agent")]
    request: Option<Which>,
    /// Print one JSON object: result.json, or what is known so far; with an agent its turns, with
    /// --request the request
    #[arg(long)]
    json: bool,
    /// Print report.md as it is made from the journal alone
    #[arg(long, conflicts_with_all = ["json", "agent"])]
    report: bool,
}

/// How a run stands whose journal cannot be read to its end.
const DAMAGED: &str = "damaged";

/// Prints the run.
pub fn act(args: &Args) -> Result<i32, Fault> {
    let found = find::one(&state::directory()?, &args.run)?;
    let read = match journal::salvage(&found.journal()) {
        Ok((read, None)) => read,
        Ok((read, Some(damage))) => return damaged(args, &found, &read.lines, &damage.into()),
        Err(error) => return damaged(args, &found, &[], &error.into()),
    };
    if read.torn > 0 {
        let torn = read.torn;
        out::note(&format!(
            "{torn} bytes of an unfinished last line are not counted"
        ));
    }
    if let (Some(agent), Some(which)) = (&args.agent, args.request) {
        let asked = request::find(&found, &read.lines, agent, which)?;
        match args.json {
            true => out::json(&asked)?,
            false => out::print(&request::page(&asked))?,
        }
        return Ok(0);
    }
    if let Some(agent) = &args.agent {
        match args.json {
            true => out::json(&turns::value(&found, &read.lines, agent)?)?,
            false => out::print(&turns::page(&found, &read.lines, agent)?)?,
        }
        return Ok(0);
    }
    if args.report {
        return out::print(&audit::report(&read.lines, &found.dir)?).map(|()| 0);
    }
    let mut story = Story::of(&read.lines);
    let finished = find::result(&read.lines);
    let standing = standing(&found, &story);
    if standing == "stopped" && found.claimed().is_some() {
        out::note("result.json tells of an end that the journal does not hold; it does not count");
    }
    if standing == "stopped" {
        story.stop();
    }
    if args.json {
        return match &finished {
            Some(summary) => out::json(summary).map(|()| 0),
            None => out::json(&unfinished(&story, standing)?).map(|()| 0),
        };
    }
    out::print(&page(&story, finished.as_ref(), standing))?;
    Ok(0)
}

/// A run whose journal cannot be read to its end: what the whole lines tell, and never that it passed.
fn damaged(args: &Args, found: &Found, lines: &[Line], fault: &Fault) -> Result<i32, Fault> {
    let claimed = found.claimed();
    let nothing = lines.is_empty() && claimed.is_none();
    if nothing || args.report || args.agent.is_some() {
        return Err(Fault::new(fault.code, fault.kind, &fault.message).hint(&fault.hint));
    }
    let mut story = Story::of(lines);
    story.stop();
    story.run.clone_from(&found.id);
    if args.json {
        let mut value = unfinished(&story, DAMAGED)?;
        value["status"] = json!(DAMAGED);
        value["error"] = fault.to_json()["error"].take();
        value["claimed"] = json!(claimed);
        out::json(&value)?;
    } else {
        let mut page = page(&story, None, DAMAGED);
        if let Some(claimed) = &claimed {
            page.push_str(&format!(
                "\nresult.json says {} (exit {}), which the journal does not bear out\n",
                result::status(claimed.status),
                claimed.exit_code
            ));
        }
        out::print(&page)?;
    }
    out::note(&fault.to_string());
    Ok(fault.code)
}

/// `running`, `stopped` (it can be told that nobody runs it), or how it ended.
pub fn standing(found: &Found, story: &Story) -> &'static str {
    match (&story.ended, crate::ops::held(&found.dir)) {
        (Some(_), _) => "ended",
        (None, Held::Yes) => "running",
        (None, Held::No) => "stopped",
        (None, Held::Unknown) => "unknown",
    }
}

fn unfinished(story: &Story, standing: &str) -> Result<serde_json::Value, Fault> {
    let mut value = serde_json::to_value(story)
        .map_err(|error| Fault::new(3, "bug", format!("encode the run: {error}")))?;
    value["status"] = match &story.ended {
        Some(ended) => json!(ended.status),
        None => json!(standing),
    };
    Ok(value)
}

fn page(story: &Story, finished: Option<&Summary>, standing: &str) -> String {
    let mut out = match finished {
        Some(summary) => result::head(summary) + &result::warnings(summary),
        None => head(story, standing),
    };
    out.push_str(&format!("\ntask: {}\n", text::line(&story.task, 400)));
    out.push_str(&format!(
        "models: {}\n",
        text::line(&story.models.join(", "), 200)
    ));
    let done = story
        .nodes
        .iter()
        .filter(|node| node.state == "done")
        .count();
    out.push_str(&format!(
        "\nsubtasks: {done} of {} done\n",
        story.nodes.len()
    ));
    let answers = Answers::of(&story.models);
    for node in &story.nodes {
        out.push_str(&node_lines(node, story, answers));
    }
    let told: Vec<*const Conversation> = story
        .nodes
        .iter()
        .filter_map(|node| story.conversation(node).map(std::ptr::from_ref))
        .collect();
    for agent in &story.agents {
        if !told.contains(&std::ptr::from_ref(agent)) {
            out.push_str(&agent_lines(agent, answers));
        }
    }
    match finished {
        Some(summary) => {
            out.push_str(&result::words(summary, 40));
            out.push_str(&judged::verdict(summary.verdict.as_ref()));
        }
        None => out.push_str(&facts(story)),
    }
    if finished.is_none() {
        for warning in &story.warnings {
            out.push_str(&format!("warning: {}\n", text::line(warning, 300)));
        }
    }
    if standing == "stopped" {
        let run = text::line(&story.run, 40);
        out.push_str(&format!("\nnext:    wharf resume {run}\n"));
    }
    if let Some(summary) = finished {
        out.push('\n');
        out.push_str(&result::delivered(summary));
        out.push_str(&format!("state:   {}\n", text::plain(&summary.run_dir)));
    }
    out
}

fn head(story: &Story, standing: &str) -> String {
    let word = match standing {
        "ended" => return ended(story),
        DAMAGED => style("damaged, could not tell what it came to")
            .red()
            .bold(),
        "running" => style("running").cyan().bold(),
        "stopped" => style("crashed, can be resumed").yellow().bold(),
        _ => style("not ended; whether it runs could not be told")
            .yellow()
            .bold(),
    };
    format!(
        "{word}  run {}  {} so far, round {}, {}\n",
        text::line(&story.run, 40),
        text::seconds(story.seconds),
        story.rounds,
        Answers::of(&story.models).spent(&text::count(story.tokens), story.spent.usd())
    )
}

/// The head of a run whose journal has its end and nothing more of a result.
fn ended(story: &Story) -> String {
    let Some(ended) = &story.ended else {
        return String::new();
    };
    format!(
        "{}  run {}  {} (exit {})\n{}",
        style(text::line(&ended.status, 40)).yellow().bold(),
        text::line(&story.run, 40),
        text::seconds(story.seconds),
        ended.exit_code,
        text::block(&ended.reason, "  ", 6)
    )
}

fn node_lines(node: &Node, story: &Story, answers: Answers) -> String {
    let mut out = format!(
        "  {} {:<20} {:<12} {}",
        wording::mark(node.state),
        text::line(&node.id, 40),
        text::line(&node.role, 40),
        node.state
    );
    if node.round > 1 {
        out.push_str(&format!(", round {}", node.round));
    }
    if !node.needs.is_empty() {
        out.push_str(&format!(
            ", after {}",
            text::line(&node.needs.join(", "), 160)
        ));
    }
    out.push('\n');
    if let Some(title) = &node.title {
        out.push_str(&format!("      {}\n", text::line(title, 160)));
    }
    if let Some(reason) = &node.reason {
        out.push_str(&text::block(reason, "      why: ", 4));
    }
    if let Some(agent) = story.conversation(node) {
        out.push_str(&format!("      {}\n", effort(agent, answers)));
        if let Some(summary) = &agent.summary {
            out.push_str(&text::block(summary, "      ", 12));
        }
    }
    out.push_str(&wording::dropped(&node.dropped));
    if !node.changed_files.is_empty() {
        let files = wording::few(&node.changed_files, 12);
        out.push_str(&format!("      files: {}\n", text::line(&files, 600)));
    }
    out
}

/// One line for who worked no subtask; with the nodes' lines all tokens of the run are told.
pub fn agent_lines(agent: &Conversation, answers: Answers) -> String {
    let role = match agent.role.as_str() {
        same if same == agent.subtask => "",
        role => role,
    };
    let mut out = format!(
        "  {} {:<20} {:<12} round {}: {}\n",
        wording::mark(if agent.running { "running" } else { "" }),
        text::line(&agent.subtask, 40),
        text::line(role, 40),
        agent.round,
        effort(agent, answers)
    );
    if let Some(reason) = &agent.reason {
        out.push_str(&text::block(reason, "      why: ", 4));
    }
    out
}

fn effort(agent: &Conversation, answers: Answers) -> String {
    let spent = answers.spent(&text::count(agent.tokens), agent.spent.usd());
    if agent.model.is_empty() {
        return format!("1 answer, {spent}");
    }
    let time = match (agent.seconds, agent.running) {
        (Some(seconds), _) => text::seconds(seconds),
        (None, true) => "still at it".to_owned(),
        (None, false) => "cut off".to_owned(),
    };
    format!(
        "{}, {}, {spent}, {time}, {}{}",
        text::plural(agent.turns as usize, "turn"),
        text::plural(agent.tool_calls as usize, "tool call"),
        text::line(&agent.model, 80),
        network(agent.egress)
    )
}

/// What its sandboxes reached; nothing where nothing was tried.
fn network(egress: Egress) -> String {
    if egress == Egress::default() {
        return String::new();
    }
    format!(
        ", network: {} allowed, {} refused, {} out, {} in",
        egress.allowed,
        egress.refused,
        text::bytes(egress.sent),
        text::bytes(egress.received)
    )
}

/// What is known of acceptance and verdict before the run has ended.
fn facts(story: &Story) -> String {
    let mut out = String::new();
    for run in &story.commands {
        let line = wording::command_line(&run.command, run.exit_code, run.seconds);
        out.push_str(&format!("  {}\n", text::line(&line, 160)));
    }
    if let Some(verdict) = &story.verdict {
        let word = verdict["status"].as_str().unwrap_or("unreadable");
        out.push_str(&format!("verdict so far: {}\n", text::line(word, 40)));
    }
    out
}
