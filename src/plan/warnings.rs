//! What a plan may say and is probably not meant to: pure.

use super::{Network, Plan};

/// Tools of one role, its ending tool included, past which models choose badly.
const TOOLS: usize = 20;

impl Plan {
    /// One sentence for each; none of them keeps a run from starting.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.many_tools();
        warnings.extend(self.never_warm());
        warnings
    }

    fn many_tools(&self) -> Vec<String> {
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

    /// A sandbox with an allow-list is never kept ready: what it may reach is its agent's own.
    fn never_warm(&self) -> Option<String> {
        let roles = self.roles.values().filter(|role| {
            role.sandbox.warm > 0 && matches!(role.sandbox.network, Network::Allow(_))
        });
        let names: Vec<&str> = roles.map(|role| role.name.as_str()).collect();
        let whose = match names.as_slice() {
            [] => return None,
            all if all.len() == self.roles.len() => "of every role".to_owned(),
            [one] => format!("of role {one}"),
            several => format!("of roles {}", several.join(", ")),
        };
        Some(format!(
            "`warm` {whose} has no effect: no sandbox is kept ready where network.allow names hosts; leave out \
             one of the two"
        ))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn warm_sandboxes_that_will_never_be_are_warned_of_by_role() {
        let of = |text: &str| {
            let text = format!("version: 1\n{text}");
            let plan = super::super::parse(&text, "p.yaml", &|path| Err(path.to_owned())).unwrap();
            let warnings = plan.warnings().into_iter();
            warnings
                .filter(|w| w.contains("`warm`"))
                .collect::<Vec<_>>()
        };
        let allow = "network: {allow: [a.example]}";
        assert_eq!(of("sandbox: {warm: 2}\n"), [""; 0]);
        assert_eq!(of(&format!("sandbox: {{{allow}}}\n")), [""; 0]);
        let all = of(&format!("sandbox: {{warm: 2, {allow}}}\n"));
        assert!(
            all[0].starts_with("`warm` of every role has no effect"),
            "{all:?}"
        );
        let one = of(&format!(
            "sandbox: {{warm: 2}}\nroles:\n  coder: {{sandbox: {{{allow}}}}}\n"
        ));
        assert!(
            one[0].starts_with("`warm` of role coder has no effect"),
            "{one:?}"
        );
    }

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
