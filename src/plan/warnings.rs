//! What a plan may say and is probably not meant to: pure.

use super::Plan;

/// Tools of one role, its ending tool included, past which models choose badly.
const TOOLS: usize = 20;

impl Plan {
    /// One sentence for each; none of them keeps a run from starting.
    pub fn warnings(&self) -> Vec<String> {
        let many = self.roles.values().filter(|role| role.tools.len() >= TOOLS);
        many.map(|role| {
            format!(
                "role {} has {} tools: past {TOOLS} models choose the wrong one more often; give it fewer in \
                 roles.{}.tools",
                role.name,
                role.tools.len() + 1,
                role.name
            )
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn more_than_twenty_tools_of_a_role_are_warned_of_by_name() {
        let tool = |n: usize| format!("  t{n}: {{description: d, command: 'true'}}\n");
        let plan = |count: usize| {
            let tools: String = (0..count).map(tool).collect();
            let names: Vec<String> = (0..count).map(|n| format!("t{n}")).collect();
            let text = format!(
                "version: 1\ntools:\n{tools}roles:\n  smith: {{prompt: p, description: d, tools: [{}]}}\n  coder: \
                 {{tools: [bash]}}\n  researcher: {{tools: [bash]}}\n  reviewer: {{tools: [bash]}}\n",
                names.join(", ")
            );
            super::super::parse(&text, "p.yaml", &|path| Err(path.to_owned())).unwrap()
        };
        let of_smith = |count: usize| {
            let warnings = plan(count).warnings();
            warnings
                .into_iter()
                .find(|text| text.contains("role smith"))
        };
        assert_eq!(of_smith(19), None);
        let text = of_smith(20).unwrap();
        assert!(text.starts_with("role smith has 21 tools"), "{text}");
    }
}
