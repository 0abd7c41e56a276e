//! The coordinator's `submit_plan` call, read strictly.

use serde::Deserialize;
use serde_json::Value;

use super::Subtask;

/// What a coordinator submitted; `Dag::new` or `Dag::extend` checks the subtasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    pub summary: String,
    /// Criteria beside those of the plan file; may be empty.
    pub criteria: Vec<String>,
    pub subtasks: Vec<Subtask>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    summary: String,
    #[serde(default)]
    criteria: Option<Vec<String>>,
    subtasks: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    id: crate::id::SubtaskId,
    role: crate::id::RoleName,
    #[serde(default)]
    title: Option<String>,
    brief: String,
    #[serde(default)]
    needs: Option<Vec<crate::id::SubtaskId>>,
}

/// Reads the arguments of `submit_plan`. The error text is for the coordinator.
pub fn submitted(arguments: &Value) -> Result<Submission, String> {
    let call = Call::deserialize(arguments).map_err(|error| format!("submit_plan: {error}"))?;
    let criteria = call.criteria.unwrap_or_default();
    if let Some(i) = criteria.iter().position(|text| text.trim().is_empty()) {
        return Err(format!(
            "submit_plan: criteria[{i}] is empty; write a sentence that can be checked"
        ));
    }
    let mut subtasks = Vec::new();
    for (i, item) in call.subtasks.iter().enumerate() {
        let item = Item::deserialize(item)
            .map_err(|error| format!("submit_plan: subtasks[{i}]: {error}"))?;
        subtasks.push(Subtask {
            id: item.id,
            role: item.role,
            title: item.title.filter(|title| !title.trim().is_empty()),
            brief: item.brief,
            needs: item.needs.unwrap_or_default(),
        });
    }
    Ok(Submission {
        summary: call.summary,
        criteria,
        subtasks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_a_whole_call() {
        let call = json!({
            "summary": "two parts", "criteria": ["it works"],
            "subtasks": [
                {"id": "a", "role": "coder", "brief": "do a", "needs": []},
                {"id": "b", "role": "coder", "title": "B", "brief": "do b", "needs": ["a"]},
                {"id": "c", "role": "coder", "brief": "do c", "needs": null},
            ],
        });
        let got = submitted(&call).unwrap();
        assert_eq!(got.criteria, ["it works"]);
        assert_eq!(got.subtasks.len(), 3);
        assert_eq!(got.subtasks[1].needs[0].as_str(), "a");
        assert_eq!(got.subtasks[1].title.as_deref(), Some("B"));
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (call, text) in [
            (json!({"subtasks": []}), "missing field `summary`"),
            (json!({"summary": "s"}), "missing field `subtasks`"),
            (
                json!({"summary": "s", "subtasks": {}}),
                "expected a sequence",
            ),
            (
                json!({"summary": "s", "subtasks": [], "approved": true}),
                "unknown field `approved`",
            ),
            (
                json!({"summary": "s", "subtasks": [], "criteria": [" "]}),
                "criteria[0] is empty",
            ),
            (
                json!({"summary": "s", "subtasks": [{"id": "a", "role": "coder"}]}),
                "subtasks[0]: missing field `brief`",
            ),
            (
                json!({"summary": "s", "subtasks": [{"id": "a", "role": "coder", "brief": "b", "need": []}]}),
                "subtasks[0]: unknown field `need`",
            ),
            (
                json!({"summary": "s", "subtasks": [{"id": 1, "role": "coder", "brief": "b"}]}),
                "subtasks[0]: invalid type",
            ),
            (json!("text"), "submit_plan: invalid type"),
        ] {
            let got = submitted(&call).unwrap_err();
            assert!(got.contains(text), "{call}: {got}");
        }
    }

    #[test]
    fn ids_are_taken_as_they_are() {
        let call =
            json!({"summary": "s", "subtasks": [{"id": "a ", "role": "coder", "brief": "b"}]});
        assert_eq!(submitted(&call).unwrap().subtasks[0].id.as_str(), "a ");
    }
}
