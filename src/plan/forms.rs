//! The ways a value may be written: text or list, number with a unit, command or map.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use super::raw::Role;

/// A command, with a limit of its own if need be.
#[derive(Clone, Debug, JsonSchema)]
#[serde(untagged)]
pub(super) enum Command {
    Line(String),
    Limited(Limited),
}

/// A command and its limit.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Limited {
    pub run: String,
    /// Default: 10m.
    #[serde(default)]
    pub timeout: Option<Time>,
}

/// The roles of a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Roles {
    /// `extends: none` was written.
    pub alone: bool,
    pub by_name: BTreeMap<String, Role>,
}

/// Roles by name; `extends: none` drops the built-in ones.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct RolesShape {
    extends: Option<Extends>,
    #[serde(flatten)]
    by_name: BTreeMap<String, Role>,
}

/// What a plan's roles are added to.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Extends {
    None,
    Default,
}

/// A word or a list of words.
#[derive(Clone, Debug, JsonSchema)]
#[serde(untagged)]
pub(super) enum Words {
    One(String),
    Many(Vec<String>),
}

/// A duration such as `30s`, `10m`, `1h30m` or `500ms`.
#[derive(Clone, Debug, JsonSchema)]
#[serde(transparent)]
pub(super) struct Time(
    #[schemars(regex(pattern = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"))] pub String,
);

/// A size such as `64k`, `512m` or `2g`, or plain bytes.
#[derive(Clone, Debug, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("type" = ["string", "integer"]))]
pub(super) struct Size(#[schemars(regex(pattern = "^[0-9]+[kmgtKMGT]?$"))] pub String);

/// A whole number, written in digits alone.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(super) struct Count(pub u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number in digits, zero or more")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Count, E> {
                Ok(Count(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Count, E> {
                let unexpected = de::Unexpected::Signed(number);
                let number = u64::try_from(number);
                number
                    .map(Count)
                    .map_err(|_| E::invalid_value(unexpected, &self))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Reads text, and numbers as the text they were written as.
struct Scalar;

impl Visitor<'_> for Scalar {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number with its unit, such as `30m` or `512m`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Scalar).map(Self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Scalar).map(Self)
    }
}

impl Words {
    /// The words, and whether they were written as a list.
    pub fn list(&self) -> &[String] {
        match self {
            Self::One(word) => std::slice::from_ref(word),
            Self::Many(words) => words,
        }
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Words;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a list of texts")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Words, E> {
                Ok(Words::One(word.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = items.next_element()? {
                    words.push(word);
                }
                Ok(Words::Many(words))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Command;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a command line, or a map with `run` and `timeout`")
            }

            fn visit_str<E: de::Error>(self, line: &str) -> Result<Command, E> {
                Ok(Command::Line(line.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Command, A::Error> {
                Limited::deserialize(MapAccessDeserializer::new(entries)).map(Command::Limited)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for Roles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Roles;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of roles by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Roles, A::Error> {
                let mut roles = Roles::default();
                while let Some(name) = entries.next_key::<String>()? {
                    if name == "extends" {
                        roles.alone = matches!(entries.next_value()?, Extends::None);
                    } else {
                        let role: Option<Role> = entries.next_value()?;
                        roles.by_name.insert(name, role.unwrap_or_default());
                    }
                }
                Ok(roles)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}
