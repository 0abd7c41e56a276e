//! YAML text with the place of every key and value.

use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_saphyr::{Error as YamlError, Location, Options, Spanned};

use super::error::Error;
use super::words;

/// The largest plan file, in bytes.
const LARGEST: usize = 1 << 20;

/// Levels of lists and maps. Each takes some 35 KiB of the stack where it is read in a debug build, and a
/// thread has 2 MiB.
pub(super) const LEVELS: usize = 32;

/// One file: its name, its text and where everything stands in it.
pub(super) struct Source {
    pub file: String,
    pub text: String,
    root: Node,
}

/// The way to a value: keys and positions from the top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Item(usize),
}

struct Node {
    at: (usize, usize),
    shape: Shape,
}

enum Shape {
    Leaf,
    List(Vec<Node>),
    Map(Vec<(String, (usize, usize), Node)>),
}

impl Path {
    fn with(&self, step: Step) -> Self {
        let mut path = self.clone();
        path.0.push(step);
        path
    }
}

/// A place in a file, for checks to name and to complain at.
#[derive(Clone)]
pub(super) struct At<'a> {
    source: &'a Source,
    path: Path,
}

impl At<'_> {
    /// The value of a key in the map here.
    pub fn key(&self, name: &str) -> Self {
        self.with(Step::Key(name.to_owned()))
    }

    /// An item of the list here, from 0.
    pub fn item(&self, index: usize) -> Self {
        self.with(Step::Item(index))
    }

    fn with(&self, step: Step) -> Self {
        Self {
            source: self.source,
            path: self.path.with(step),
        }
    }

    /// A fault at the value; what is not there is shown at what should hold it.
    pub fn value_fault(&self, message: impl Into<String>, hint: impl Into<String>) -> Error {
        let (_, value) = self.source.find(&self.path);
        self.source.fault(value, message, hint)
    }

    /// A fault at the key.
    pub fn key_fault(&self, message: impl Into<String>, hint: impl Into<String>) -> Error {
        let (key, _) = self.source.find(&self.path);
        self.source.fault(key, message, hint)
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(name) if i == 0 => f.write_str(name)?,
                Step::Key(name) => write!(f, ".{name}")?,
                Step::Item(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl Source {
    /// Reads the structure; errors are those of YAML itself: syntax, duplicate keys, size.
    pub fn read(file: &str, text: &str) -> Result<Self, Error> {
        let here = (file, text);
        if text.len() > LARGEST {
            let message = format!("the file has {} bytes, more than 1 MiB", text.len());
            return Err(Error::at(
                here,
                (1, 1),
                message,
                "move long text into a `prompt_file`",
            ));
        }
        let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        if text.trim_start_matches('\u{feff}').lines().all(blank) {
            let hint = "start with `version: 1`; `wharf init` writes a first plan";
            return Err(Error::at(here, (1, 1), "the file is empty", hint));
        }
        let root = serde_saphyr::from_str_with_options::<Node>(text, options())
            .map_err(|error| located(here, &error, None))?;
        Ok(Self {
            file: file.to_owned(),
            text: text.to_owned(),
            root,
        })
    }

    /// Reads the values into a type that knows every key.
    pub fn values<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if !matches!(self.root.shape, Shape::Map(_)) {
            let hint = "write one key a line, first `version: 1`";
            return Err(self.fault(self.root.at, "the file is not a map of keys", hint));
        }
        serde_saphyr::from_str_with_options::<T>(&self.text, options())
            .map_err(|error| located((&self.file, &self.text), &error, Some(&self.root)))
    }

    /// The top of the file.
    pub fn top(&self) -> At<'_> {
        At {
            source: self,
            path: Path::default(),
        }
    }

    fn fault(
        &self,
        at: (usize, usize),
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Error {
        Error::at((&self.file, &self.text), at, message, hint)
    }

    /// Where the key and the value of a path stand.
    fn find(&self, path: &Path) -> ((usize, usize), (usize, usize)) {
        let mut node = &self.root;
        let mut key = node.at;
        for step in &path.0 {
            let next = match (step, &node.shape) {
                (Step::Key(name), Shape::Map(entries)) => entries
                    .iter()
                    .find(|(key, _, _)| key == name)
                    .map(|(_, at, value)| (*at, value)),
                (Step::Item(index), Shape::List(items)) => {
                    items.get(*index).map(|item| (item.at, item))
                }
                _ => None,
            };
            let Some((at, value)) = next else {
                return (key, key);
            };
            (key, node) = (at, value);
        }
        (key, node.at)
    }
}

/// Strict reading within our own limits.
fn options() -> Options {
    let budget = serde_saphyr::budget! {
        max_nodes: 50_000,
        max_events: 150_000,
        max_depth: LEVELS,
        flow_nesting_limit: LEVELS,
        max_aliases: 1000,
        max_anchors: 1000,
        max_documents: 1,
    };
    serde_saphyr::options! {
        budget: budget,
        strict_booleans: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    }
}

fn spot(location: Location) -> (usize, usize) {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    (number(location.line()), number(location.column()))
}

/// An error of the YAML reader, in our words and at its place.
fn located((file, text): (&str, &str), error: &YamlError, root: Option<&Node>) -> Error {
    let error = error.without_snippet();
    let end = (text.lines().count().max(1), 1);
    let place = error.location().map(spot);
    let mut at = place.filter(|at| at.0 > 0).unwrap_or(end);
    let by_type = matches!(
        words::bare(error).0,
        YamlError::SerdeInvalidType { .. } | YamlError::SerdeInvalidValue { .. }
    );
    let owner = root.and_then(|root| match by_type {
        true => keyed(root, at).or_else(|| valued(root, at)),
        false => valued(root, at).or_else(|| keyed(root, at)),
    });
    if let Some((_, value)) = owner.as_ref().filter(|_| by_type) {
        // The reader names the key's place for a value it could read but not use.
        at = *value;
    }
    if words::is_counted_at_the_end(error) {
        at = last_alias(text).unwrap_or(at);
    }
    if words::is_tab(error) {
        at = tab(text, at);
    }
    let word = word_at(text, at);
    let path = owner.map(|(path, _)| path.to_string());
    let (message, hint) = words::explain(error, &word, path.as_deref());
    Error::at((file, text), at, message, hint)
}

/// Where the last alias stands.
fn last_alias(text: &str) -> Option<(usize, usize)> {
    let starts = |before: Option<char>| before.is_none_or(|c| " \t[,{".contains(c));
    let names = |after: Option<char>| after.is_some_and(char::is_alphanumeric);
    let lines = text.lines().enumerate();
    let found = lines.filter_map(|(n, line)| {
        let chars: Vec<char> = line.chars().collect();
        let alias = |at: &usize| {
            let before = at.checked_sub(1).map(|at| chars[at]);
            chars[*at] == '*' && starts(before) && names(chars.get(at + 1).copied())
        };
        let at = (0..chars.len()).rev().find(alias)?;
        Some((n + 1, at + 1))
    });
    found.last()
}

/// The tab that the reader complains of: the first in the blank before the place that it names, else the
/// next one after it.
fn tab(text: &str, (line, column): (usize, usize)) -> (usize, usize) {
    let lines: Vec<&str> = text.lines().collect();
    let here = lines.get(line - 1).copied().unwrap_or_default();
    let before: Vec<char> = here.chars().take(column.saturating_sub(1)).collect();
    let blank = before.iter().rposition(|c| !matches!(c, ' ' | '\t'));
    let from = blank.map_or(0, |at| at + 1);
    if let Some(at) = before[from..].iter().position(|c| *c == '\t') {
        return (line, from + at + 1);
    }
    let rest = lines.iter().enumerate().skip(line - 1);
    let mut tabs = rest.filter_map(|(n, text)| {
        let skipped = if n + 1 == line {
            column.saturating_sub(1)
        } else {
            0
        };
        let found = text.chars().skip(skipped).position(|c| c == '\t');
        found.map(|at| (n + 1, skipped + at + 1))
    });
    tabs.next().unwrap_or((line, column))
}

/// The word that starts at a place, for messages.
fn word_at(text: &str, (line, column): (usize, usize)) -> String {
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let rest = line.chars().skip(column.saturating_sub(1));
    let word: String = rest.take_while(|c| !",]}#".contains(*c)).take(40).collect();
    let word = word.trim_end();
    let key = word.split(": ").next().unwrap_or(word);
    key.trim_end_matches(':').to_owned()
}

/// A path, and where its value stands.
type Owner = (Path, (usize, usize));

/// The value that stands at a place.
fn valued(root: &Node, at: (usize, usize)) -> Option<Owner> {
    walk(root, &Path::default(), &|_, node| node.at == at)
}

/// The value whose key stands at a place.
fn keyed(root: &Node, at: (usize, usize)) -> Option<Owner> {
    walk(root, &Path::default(), &|key, _| key == Some(at))
}

/// Whether a value, seen with its key's place, is the one looked for.
type Meant<'a> = &'a dyn Fn(Option<(usize, usize)>, &Node) -> bool;

/// The first value below a node that is the one meant, seen with its key's place.
fn walk(node: &Node, path: &Path, meant: Meant<'_>) -> Option<Owner> {
    let check = |key, value: &Node, path: Path| match meant(key, value) {
        true => Some((path, value.at)),
        false => walk(value, &path, meant),
    };
    match &node.shape {
        Shape::Leaf => None,
        Shape::List(items) => items
            .iter()
            .enumerate()
            .find_map(|(i, item)| check(None, item, path.with(Step::Item(i)))),
        Shape::Map(entries) => entries.iter().find_map(|(name, key, value)| {
            check(Some(*key), value, path.with(Step::Key(name.clone())))
        }),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Shape>::deserialize(deserializer)?;
        Ok(Self {
            at: spot(spanned.defined),
            shape: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Shapes)
    }
}

struct Shapes;

macro_rules! leaves {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E: de::Error>(self, _: $type) -> Result<Shape, E> {
            Ok(Shape::Leaf)
        })*
    };
}

impl<'de> Visitor<'de> for Shapes {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    leaves!(visit_bool: bool, visit_i64: i64, visit_i128: i128, visit_u64: u64, visit_u128: u128,
        visit_f64: f64, visit_str: &str, visit_bytes: &[u8]);

    fn visit_unit<E: de::Error>(self) -> Result<Shape, E> {
        Ok(Shape::Leaf)
    }

    fn visit_none<E: de::Error>(self) -> Result<Shape, E> {
        Ok(Shape::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        Shape::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Shape::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Shape, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            map.push((key.value, spot(key.defined), entries.next_value()?));
        }
        Ok(Shape::Map(map))
    }
}
