//! Ways out of sandboxes as a run deals with them: the plan's list becomes the sandbox room's policy,
//! its decisions become facts, and those who should know are told what can be reached.

use std::sync::Arc;

use crate::agent::Reachable;
use crate::journal::{Agent, EgressStep, Event, Writer};
use crate::plan;
use crate::run::end::words;
use crate::run::shared::Shared;
use crate::sandbox::Network;
use crate::sandbox::egress::{Decision, Host, Inject, Listener, Policy, Rule, Sink, Step};
use crate::trace::{self, Span, Value, names};

/// Journals what was decided for one agent, and puts it on the agent's span.
struct Clerk {
    who: Agent,
    journal: Writer,
    span: Span,
}

impl Sink for Clerk {
    fn tell(&self, decision: Decision) {
        let step = step(decision.step);
        let attributes = attributes(&decision.host, decision.port, &step);
        self.span.event(names::EGRESS, attributes);
        self.journal.note(Event::Egress {
            agent: self.who.clone(),
            connection: decision.connection,
            host: decision.host,
            port: decision.port,
            step,
        });
    }
}

fn step(step: Step) -> EgressStep {
    match step {
        Step::Allowed { address, injected } => EgressStep::Allowed { address, injected },
        Step::Refused { reason } => EgressStep::Refused { reason },
        Step::Ended {
            sent,
            received,
            milliseconds,
            how,
        } => EgressStep::Ended {
            sent,
            received,
            milliseconds,
            how,
        },
        Step::Unlisted {
            allowed,
            refused,
            sent,
            received,
        } => EgressStep::Unlisted {
            allowed,
            refused,
            sent,
            received,
        },
    }
}

/// A decision as an event of a span.
pub(in crate::run) fn attributes(host: &str, port: u16, step: &EgressStep) -> trace::Attributes {
    let word = match step {
        EgressStep::Allowed { .. } => "allowed".to_owned(),
        EgressStep::Refused { reason } => format!("refused: {reason}"),
        EgressStep::Ended { how, .. } => format!("ended: {how}"),
        EgressStep::Unlisted { .. } => "unlisted".to_owned(),
    };
    vec![
        (names::SERVER_ADDRESS, Value::Text(host.to_owned())),
        (names::SERVER_PORT, Value::Int(port.into())),
        (names::STATUS, Value::Text(word)),
    ]
}

/// The network of an agent's sandboxes, its decisions going to the journal.
pub(in crate::run) fn network(
    shared: &Shared,
    network: &plan::Network,
    who: &Agent,
    span: &Span,
) -> Network {
    match network {
        plan::Network::None => Network::None,
        plan::Network::Full => Network::Full,
        plan::Network::Allow(reach) => Network::Allow(Policy {
            listener: Listener::new(Arc::new(Clerk {
                who: who.clone(),
                journal: shared.journal.clone(),
                span: span.clone(),
            })),
            ..policy(reach)
        }),
    }
}

fn policy(reach: &plan::Reach) -> Policy {
    Policy {
        rules: reach.allow.iter().map(rule).collect(),
        private: reach.private,
        bytes: reach.bytes,
        connections: reach.connections,
        inject: reach.inject.iter().map(inject).collect(),
        listener: Listener::default(),
    }
}

fn rule(allowed: &plan::Allowed) -> Rule {
    Rule {
        host: match &allowed.host {
            plan::Host::Name(name) => Host::Name(name.clone()),
            plan::Host::Below(name) => Host::Below(name.clone()),
            plan::Host::Address(address) => Host::Address(*address),
        },
        port: allowed.port,
    }
}

fn inject(own: &plan::Inject) -> Inject {
    Inject {
        host: own.host.clone(),
        port: own.port,
        tls: own.tls,
        header: own.header.clone(),
        prefix: own.prefix.clone(),
        env: own.env.clone(),
    }
}

/// What an agent is told that it can reach.
pub(in crate::run) fn reachable(network: &plan::Network) -> Reachable {
    match network {
        plan::Network::None => Reachable::Nothing,
        plan::Network::Full => Reachable::Network,
        plan::Network::Allow(reach) => Reachable::Hosts {
            hosts: reach.allow.iter().map(ToString::to_string).collect(),
            added: reach
                .inject
                .iter()
                .map(|own| (own.address(), own.header.clone()))
                .collect(),
        },
    }
}

/// Who has a network, for the run's first line: a role's name where it is a full one, else with the
/// hosts it can reach. Acceptance commands run in a sandbox of the plan's own.
pub(in crate::run) fn announced(plan: &plan::Plan) -> Vec<String> {
    let roles = plan
        .roles
        .values()
        .map(|r| (r.name.to_string(), &r.sandbox.network));
    let commands = (!plan.acceptance.commands.is_empty())
        .then(|| ("acceptance commands".to_owned(), &plan.sandbox.network));
    roles
        .chain(commands)
        .filter_map(|(name, network)| match network {
            plan::Network::None => None,
            plan::Network::Full => Some(name),
            plan::Network::Allow(reach) => Some(format!(
                "{name} (only {})",
                words::few(&reach.allow, 4, ", ")
            )),
        })
        .collect()
}
