//! How often the operator's own tools may be called: all agents of a run together.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::plan::OwnTool;

/// What a rate is counted over.
const MINUTE: Duration = Duration::from_secs(60);

/// The rates of a run, by tool; tools without one are not in it.
pub(in crate::run) struct Rates(BTreeMap<String, watch::Sender<Rate>>);

/// One tool's rate, and when its last calls begin.
#[derive(Clone, Debug)]
struct Rate {
    most: usize,
    begun: VecDeque<Instant>,
}

impl Rate {
    /// When one more call may begin; a place in the row is taken by asking. A place that is not used is
    /// lost: that is rather too seldom than too often.
    fn place(&mut self, now: Instant) -> Instant {
        let full = self.begun.len() == self.most;
        let first = self.begun.pop_front_if(|_| full);
        let at = first.map_or(now, |first| now.max(first + MINUTE));
        self.begun.push_back(at);
        at
    }
}

impl Rates {
    /// The rates that a plan gives its tools, none used yet.
    pub fn new(tools: &BTreeMap<String, OwnTool>) -> Self {
        let rated = tools.iter().filter_map(|(name, tool)| {
            let most = usize::try_from(tool.per_minute?).unwrap_or(usize::MAX);
            let begun = VecDeque::new();
            Some((name.clone(), watch::Sender::new(Rate { most, begun })))
        });
        Self(rated.collect())
    }

    /// How long the next call of a tool waits.
    pub fn wait(&self, tool: &str) -> Duration {
        let Some(rate) = self.0.get(tool) else {
            return Duration::ZERO;
        };
        let now = Instant::now();
        let mut at = now;
        rate.send_if_modified(|rate| {
            at = rate.place(now);
            false
        });
        at - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_minute_has_more_calls_than_the_rate() {
        let tool = |per_minute| OwnTool {
            description: "d".into(),
            schema: serde_json::json!({"type": "object"}),
            command: "true".into(),
            per_minute,
        };
        let tools = BTreeMap::from([
            ("slow".to_owned(), tool(Some(3))),
            ("free".to_owned(), tool(None)),
        ]);
        let rates = Rates::new(&tools);
        let began = Instant::now();
        let mut begun = Vec::new();
        for pause in [0, 0, 10, 0, 0, 100, 0, 0, 0, 0] {
            tokio::time::advance(Duration::from_secs(pause)).await;
            let wait = rates.wait("slow");
            assert_eq!(rates.wait("free"), Duration::ZERO);
            tokio::time::advance(wait).await;
            begun.push(began.elapsed().as_secs());
        }
        assert_eq!(begun, [0, 0, 10, 60, 60, 160, 160, 160, 220, 220]);
        for four in begun.windows(4) {
            assert!(four[3] - four[0] >= 60, "{begun:?}");
        }
        let waits: Vec<u64> = (0..5).map(|_| rates.wait("slow").as_secs()).collect();
        assert_eq!(
            waits,
            [0, 60, 60, 60, 120],
            "those who come at once get places one after another"
        );
    }
}
