//! One connection out, from the knock to its end.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wharf_toolbox::message::{Form, Reach};

use super::decide::{Grant, Refusal, decide};
use super::dial::{Server, dial};
use super::office::Office;
use super::passage::Knock;
use super::policy::Step;
use super::relay::{Filter, Relay};
use super::request::{Added, Request};

/// Decides, dials, and moves bytes until either side is done or `over` is.
pub(super) async fn attend(
    office: Arc<Office>,
    knock: Knock,
    number: u64,
    over: CancellationToken,
) {
    let Knock { reach, passage } = knock;
    let (grant, server, added) = match admit(&office, &reach, &over).await {
        Ok(admitted) => admitted,
        Err(refusal) => {
            office.refused(&reach, number, &refusal);
            return passage.refuse(&refusal);
        }
    };
    let begun = Instant::now();
    let allowed = Step::Allowed {
        address: server.address.to_string(),
        injected: added.iter().map(|added| added.name.clone()).collect(),
    };
    office.tell(&reach, number, allowed);
    passage.accept();
    let filter = match reach.form {
        Form::Tunnel => Filter::First(Vec::new()),
        Form::Request => Filter::Request(Request::new(grant.clone(), added)),
    };
    let relay = Relay::new(&office, &grant, passage, filter);
    let ended = relay.run(server.stream, &over).await;
    let ended = Step::Ended {
        sent: ended.sent,
        received: ended.received,
        milliseconds: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        how: ended.how,
    };
    office.tell(&reach, number, ended);
}

async fn admit(
    office: &Office,
    reach: &Reach,
    over: &CancellationToken,
) -> Result<(Grant, Server, Vec<Added>), Refusal> {
    let grant = decide(&office.policy, reach)?;
    let added = credentials(office, &grant)?;
    if office.is_spent() {
        return Err(Refusal::forbidden(format!(
            "the {} bytes that the plan allows are used up",
            office.policy.bytes
        )));
    }
    tokio::select! {
        dialled = dial(&office.way, &grant) => dialled.map(|server| (grant.clone(), server, added)),
        () = over.cancelled() => Err(Refusal::unreachable("the sandbox was closed")),
    }
}

/// The values of what is to be added; one that is not there is no reason to go without it.
fn credentials(office: &Office, grant: &Grant) -> Result<Vec<Added>, Refusal> {
    let each = grant.inject.iter().map(|inject| {
        let value = office.way.credentials.get(&inject.env).cloned();
        let missing = || Refusal::forbidden(format!("the credential {} is not set", inject.env));
        Ok(Added {
            name: inject.header.clone(),
            prefix: inject.prefix.clone(),
            value: value.ok_or_else(missing)?,
        })
    });
    each.collect()
}
