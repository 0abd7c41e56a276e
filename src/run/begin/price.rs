//! A money limit needs prices: what is refused before anything is made.

use crate::run::{Error, Order};

/// Refuses what cannot work before anything is made.
pub(in crate::run) fn check(order: &Order) -> Result<(), Error> {
    let refused = unpriced(&order.plan, order.models.all().map(|model| model.about()));
    refused.map_or(Ok(()), Err)
}

/// The refusal of a money limit over a model whose price is not known.
pub fn unpriced(
    plan: &crate::plan::Plan,
    models: impl IntoIterator<Item = crate::model::About>,
) -> Option<Error> {
    plan.run.cost_usd?;
    let about = models.into_iter().find(|about| about.price.is_none())?;
    Some(Error::Start {
        code: 2,
        kind: "price",
        message: format!(
            "a money limit is set, and the price of {} is not known",
            about.name
        ),
        hint:
            "give prices: {PROVIDER/MODEL: {input: …, output: …}} in the plan or the user configuration, or use a \
                 token limit"
                .to_owned(),
    })
}
