//! Where a plan names a model: for faults that are not the plan's alone, such as a provider that nobody
//! knows here.

use super::error::Error;
use super::files::Loader;
use super::parse::{Load, role_files};
use super::raw;
use super::yaml::{At, Source};

/// A fault of a model, by message and hint, at the first place where the plan names it: at its top, in
/// `compaction`, in a role or in a role file. None where it does not; then the name came from elsewhere.
pub fn model_fault(
    (text, name): (&str, &str),
    load: Load<'_>,
    model: &str,
    (message, hint): (&str, &str),
) -> Option<Error> {
    let source = Source::read(name, text).ok()?;
    let file: raw::Plan = source.values().ok()?;
    let top = source.top();
    let mut loader = Loader {
        load,
        loaded: Vec::new(),
    };
    let fault = |at: At<'_>| at.value_fault(message, hint);
    let compaction = file.compaction.as_ref().and_then(|c| c.model.as_ref());
    let here = [
        (top.key("model"), file.model.as_ref()),
        (top.key("compaction").key("model"), compaction),
    ];
    let roles = file.roles.iter().flat_map(|roles| &roles.by_name);
    let roles = roles.map(|(name, role)| {
        let at = top.key("roles").key(name).key("model");
        (at, role.model.as_ref())
    });
    let mut own = here.into_iter().chain(roles);
    if let Some(at) = own.find_map(|(at, words)| place(&at, words, model)) {
        return Some(fault(at));
    }
    let files = role_files(&top, file.role_files.as_ref(), &mut loader).ok()?;
    files.iter().find_map(|file| {
        let at = file.source.top().key("model");
        place(&at, file.role.model.as_ref(), model).map(fault)
    })
}

fn place<'a>(at: &At<'a>, words: Option<&raw::Words>, model: &str) -> Option<At<'a>> {
    let words = words?;
    let index = words.list().iter().position(|word| word == model)?;
    Some(match words {
        raw::Words::One(_) => at.clone(),
        raw::Words::Many(_) => at.item(index),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_wherever_a_plan_names_it() {
        let load = |path: &str| match path {
            "r.md" => Ok("---\nname: tester\nmodel: deep/m\n---\nTest it.\n".to_owned()),
            _ => Err("no such file".to_owned()),
        };
        let text = "version: 1\nmodel: [one/m, two/m]\ncompaction: {model: three/m}\n\
                    roles:\n  coder: {model: four/m}\nrole_files: [r.md]\n";
        let at = |model: &str| {
            let fault = model_fault((text, "p.yaml"), &load, model, ("m", "h"))?;
            Some((fault.file, fault.line, fault.column))
        };
        let here = |line, column| Some(("p.yaml".to_owned(), line, column));
        assert_eq!(at("one/m"), here(2, 9));
        assert_eq!(at("two/m"), here(2, 16));
        assert_eq!(at("three/m"), here(3, 21));
        assert_eq!(at("four/m"), here(5, 18));
        assert_eq!(at("deep/m"), Some(("r.md".to_owned(), 3, 8)));
        assert_eq!(at("five/m"), None);
    }
}
