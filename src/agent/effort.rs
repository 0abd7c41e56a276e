//! A plan's word for effort in the model's words.

use crate::{model, plan};

/// How much a role's model should think.
pub fn effort(role: &plan::Role) -> Option<model::Effort> {
    role.effort.map(|effort| match effort {
        plan::Effort::Minimal => model::Effort::Minimal,
        plan::Effort::Low => model::Effort::Low,
        plan::Effort::Medium => model::Effort::Medium,
        plan::Effort::High => model::Effort::High,
    })
}
