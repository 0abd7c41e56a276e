//! One agent from its sandbox's start to its end: the same for coordinator, workers, merger and verifier.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::{self, Assignment, Outcome, Stop};
use crate::id::CommitId;
use crate::journal::{Agent, AgentEnd, AgentKind, Event};
use crate::model::{Key, Model};
use crate::run::again::recall::{self, Recalled};
use crate::run::allow::{egress, hooking};
use crate::run::board::{Notice, Row};
use crate::run::shared::Shared;
use crate::run::work::accept::Accept;
use crate::run::work::desk::Desk;
use crate::run::work::left_out;
use crate::run::work::salvage;
use crate::run::work::settings;
use crate::run::work::trees::Standing;
use crate::sandbox::Image;
use crate::trace::{AgentStart, Span};
use crate::{plan, tools};

/// What the span of an agent says that reported its own failure.
pub(in crate::run) const REPORTED: (&str, &str) =
    ("reported_failure", "the agent reported that it failed");

/// What one agent is to do.
pub(in crate::run) struct Job {
    pub who: Agent,
    pub kind: AgentKind,
    pub role: plan::Role,
    pub image: Image,
    pub start: Arc<Standing>,
    pub first: String,
    pub accept: Accept,
    pub parent: Span,
    /// Spans of what it needed, to be linked.
    pub needs: Vec<Span>,
    pub begin: Begin,
}

/// Whether an agent goes on with what the journal has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum Begin {
    AsRecorded,
    /// Its sandbox failed it in this process: with a conversation of its own.
    Anew,
}

/// How it came out.
pub(in crate::run) struct End {
    pub who: Agent,
    pub kind: AgentKind,
    pub start: CommitId,
    pub outcome: Outcome,
    /// What it made, on top of `start`; equal to it when nothing changed.
    pub snapshot: CommitId,
    pub left_out: Vec<(String, String)>,
    /// The commands it ran last, where it ended without its ending call.
    pub commands: Vec<String>,
    pub tokens: u64,
    pub cost_usd: Option<f64>,
    pub span: Span,
}

/// Runs the agent; never fails: what went wrong is in the outcome.
pub(in crate::run) async fn work(shared: Arc<Shared>, job: Job) -> End {
    let (who, kind, start) = (job.who.clone(), job.kind, job.start.commit.clone());
    let span = open_span(&shared, &job);
    let since = Instant::now();
    let recalled = match job.begin {
        Begin::AsRecorded => recall::recall(&shared, &job.who, &job.start).await,
        Begin::Anew => None,
    };
    announce(&shared, &job, recalled.as_ref());
    let worked = at_desk(&shared, job, recalled, span.clone()).await;
    let (outcome, snapshot, left_out) = match worked {
        Ok(worked) => worked,
        Err(stop) => (stopped(stop, since.elapsed()), start.clone(), Vec::new()),
    };
    let (tokens, cost_usd) = shared
        .board
        .remove(who.subtask.as_str())
        .map_or((0, None), |row| (row.tokens, row.cost_usd));
    let commands = match outcome.ended {
        Err(_) => salvage::commands(&outcome.results),
        Ok(_) => Vec::new(),
    };
    let mut end = End {
        who,
        kind,
        start,
        outcome,
        snapshot,
        left_out,
        commands,
        tokens,
        cost_usd,
        span,
    };
    if let Err(error) = shared.journal.append(ended(&end)).await {
        end.outcome.ended = Err(Stop::Environment {
            reason: error.to_string(),
        });
    }
    if let Err(stop) = &end.outcome.ended {
        end.span.fail(stop.word(), &stop.without_quotes());
    }
    if matches!(&end.outcome.ended, Ok(report) if report["status"] == "failed") {
        end.span.fail(REPORTED.0, REPORTED.1);
    }
    // A verifier's span stays open for what its verdict is worth.
    if end.kind != AgentKind::Verifier {
        end.span.end();
    }
    end
}

async fn at_desk(
    shared: &Arc<Shared>,
    job: Job,
    recalled: Option<Recalled>,
    span: Span,
) -> Result<(Outcome, CommitId, Vec<(String, String)>), Stop> {
    if recalled.is_none() {
        hooking::starting(shared, &job.who).await?;
    }
    let models = shared.models_of(&job.role).to_vec();
    let window = window(&job.role, &models);
    let ending = ending(job.kind);
    let discarded = matches!(job.kind, AgentKind::Coordinator | AgentKind::Verifier);
    let tools = tools::Set::new(settings::tools(shared, &job.role, ending)).map_err(|error| {
        Stop::Environment {
            reason: error.to_string(),
        }
    })?;
    let network = egress::network(shared, &job.role.sandbox.network, &job.who, &span);
    let subtask = job.who.subtask.as_str();
    let spec = settings::spec(shared, &job.role.sandbox, job.image, subtask, network);
    let (start, accept) = (job.start.clone(), job.accept);
    let at: &Standing = recalled.as_ref().map_or(&start, |recalled| &recalled.at);
    let desk = Desk::open(
        shared.clone(),
        job.who.clone(),
        spec,
        (&start, at),
        models,
        accept,
    )
    .await?;
    let (past, shortened, spent) = match recalled {
        Some(recalled) => {
            desk.recall(&recalled);
            (recalled.past, recalled.shortened, recalled.spent)
        }
        None => (Vec::new(), Vec::new(), Duration::ZERO),
    };
    let assignment = Assignment {
        system: job.role.prompt.clone(),
        first: job.first,
        ending,
        tools,
        compaction: shared.plan.compaction.clone(),
        context_window: window,
        summary_window: summary_window(shared, window),
        shortened,
        key: key(&job.who),
        past,
        spent,
        span,
        role: job.role,
    };
    let mut outcome = agent::work(assignment, &desk).await;
    let said = discarded && outcome.ended.is_ok();
    if !said {
        take_last(&desk, &mut outcome).await;
    }
    desk.close().await;
    Ok((outcome, desk.snapshot(), desk.left_out()))
}

/// What stands in the sandbox is kept whatever ended the agent, as far as it can still be read. What a
/// coordinator or a verifier leaves there is thrown away, so no fault of it can undo what they said.
async fn take_last(desk: &Desk, outcome: &mut Outcome) {
    let lost = matches!(
        outcome.ended,
        Err(Stop::Environment { .. } | Stop::Broken { .. })
    );
    if !lost
        && !desk.is_handed_in()
        && let (Err(stop), Ok(_)) = (desk.take_snapshot().await, &outcome.ended)
    {
        outcome.ended = Err(stop);
    }
}

fn ending(kind: AgentKind) -> tools::Ending {
    match kind {
        AgentKind::Coordinator => tools::Ending::Plan,
        AgentKind::Worker | AgentKind::Merger => tools::Ending::Report,
        AgentKind::Verifier => tools::Ending::Verdict,
    }
}

fn key(who: &Agent) -> Key {
    Key {
        round: who.round,
        subtask: who.subtask.to_string(),
        role: who.role.to_string(),
        call: 0,
    }
}

/// Tokens a request and its reply may hold: the plan's word, else what every model of the role can take.
fn window(role: &plan::Role, models: &[Arc<dyn Model>]) -> u64 {
    let known = models.iter().map(|m| m.about().context_window).min();
    role.context_window.or(known).unwrap_or(128_000)
}

/// The same for requests that ask for a summary.
fn summary_window(shared: &Shared, own: u64) -> u64 {
    let known = shared.models.summary.iter();
    let known = known.map(|model| model.about().context_window).min();
    known.unwrap_or(own)
}

/// The kind as spans have it.
pub(in crate::run) fn kind_word(kind: AgentKind) -> &'static str {
    match kind {
        AgentKind::Coordinator => "coordinator",
        AgentKind::Worker => "worker",
        AgentKind::Merger => "merger",
        AgentKind::Verifier => "verifier",
    }
}

fn open_span(shared: &Shared, job: &Job) -> Span {
    let about = shared
        .models_of(&job.role)
        .first()
        .map(|m| m.about())
        .unwrap_or_default();
    let start = AgentStart {
        run: shared.id.to_string(),
        role: job.role.name.to_string(),
        subtask: job.who.subtask.to_string(),
        description: job.role.description.clone(),
        provider: about.provider,
        model: about.name,
        round: job.who.round,
        kind: kind_word(job.kind),
    };
    job.parent.agent(&start, &job.needs)
}

fn announce(shared: &Shared, job: &Job, recalled: Option<&Recalled>) {
    let (agent, role) = (job.who.subtask.to_string(), job.role.name.to_string());
    // What an earlier process paid for this agent counts, as in every other place that says its tokens.
    let spent = shared.past.state().agents.get(&job.who);
    let spent = spent.map(|agent| agent.spent).unwrap_or_default();
    shared.board.put(Row {
        agent: agent.clone(),
        role: role.clone(),
        doing: "starting its sandbox".to_owned(),
        turn: 0,
        turns: job.role.limits.turns,
        tokens: spent.usage.input_tokens + spent.usage.output_tokens,
        cost_usd: spent.cost_usd,
        since: std::time::Instant::now(),
    });
    shared.tell(&Notice::AgentStarted {
        agent,
        role,
        round: job.who.round,
    });
    let models = shared.models_of(&job.role);
    shared.journal.note(match recalled {
        Some(recalled) => recalled.resumed.clone(),
        None => Event::AgentStarted {
            agent: job.who.clone(),
            kind: job.kind,
            model: models.first().map(|m| m.about().name).unwrap_or_default(),
            start: job.start.commit.clone(),
        },
    });
}

fn stopped(stop: Stop, elapsed: Duration) -> Outcome {
    Outcome {
        ended: Err(stop),
        turns: 0,
        tool_calls: 0,
        elapsed,
        results: Vec::new(),
    }
}

fn ended(end: &End) -> Event {
    let stop = end.outcome.ended.as_ref().err();
    Event::AgentEnded {
        agent: end.who.clone(),
        end: AgentEnd {
            ended: end.outcome.ended.as_ref().ok().cloned(),
            reason: stop.map(ToString::to_string),
            stop: stop.and_then(|stop| serde_json::to_value(stop).ok()),
            turns: end.outcome.turns,
            tool_calls: end.outcome.tool_calls,
            seconds: end.outcome.elapsed.as_secs_f64(),
            snapshot: (end.snapshot != end.start).then(|| end.snapshot.clone()),
            left_out: end.left_out.iter().map(left_out::line).collect(),
            commands: end.commands.clone(),
        },
    }
}
