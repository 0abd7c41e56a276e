//! Durations (`1h30m`) and sizes (`2g`) as text.

use std::time::Duration;

/// The longest duration a plan may name: a year.
const LONGEST: u64 = 365 * 24 * 3600 * 1000;

const TIMES: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

const SIZES: [(&str, u64); 4] = [
    ("t", 1 << 40),
    ("g", 1 << 30),
    ("m", 1 << 20),
    ("k", 1 << 10),
];

/// Reads `500ms`, `30s`, `10m`, `1h30m`, `2d`; units fall from large to small. Errors are hints.
pub fn duration(text: &str) -> Result<Duration, String> {
    let mut rest = text;
    let mut total = 0u64;
    let mut last = usize::MAX;
    if text.is_empty() {
        return Err("write a duration such as `30s`, `10m` or `1h30m`".to_owned());
    }
    while !rest.is_empty() {
        let (number, after) = leading_number(rest)
            .ok_or_else(|| "write whole numbers with units, such as `1h30m`".to_owned())?;
        let end = after.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let place = TIMES.iter().position(|(name, _)| *name == unit);
        let Some(place) = place else {
            return Err(time_unit_hint(text, unit));
        };
        if last != usize::MAX && place <= last {
            return Err("name each unit once, from large to small, such as `1h30m`".to_owned());
        }
        last = place;
        total = number
            .checked_mul(TIMES[place].1)
            .and_then(|part| total.checked_add(part))
            .filter(|total| *total <= LONGEST)
            .ok_or_else(|| "the longest duration is `365d`".to_owned())?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

/// Reads `64k`, `512m`, `2g`, `1t` (powers of 1024) or plain bytes. Errors are hints.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) =
        leading_number(text).ok_or_else(|| "write a size such as `512m` or `2g`".to_owned())?;
    let unit = unit.to_ascii_lowercase();
    let factor = match unit.as_str() {
        "" => 1,
        unit => SIZES
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, factor)| *factor)
            .ok_or_else(|| {
                format!(
                    "the units are k, m, g and t: did you mean `{}`?",
                    guess(number, unit)
                )
            })?,
    };
    number
        .checked_mul(factor)
        .filter(|bytes| *bytes <= 1 << 50)
        .ok_or_else(|| "the largest size is `1024t`".to_owned())
}

/// A duration as this module reads it.
pub fn show_duration(time: Duration) -> String {
    let mut rest = u64::try_from(time.as_millis()).unwrap_or(LONGEST);
    let mut text = String::new();
    for (unit, length) in TIMES {
        if rest >= length {
            text += &format!("{}{unit}", rest / length);
            rest %= length;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

/// A size as this module reads it: the largest unit that divides it.
pub fn show_size(bytes: u64) -> String {
    SIZES
        .iter()
        .find(|(_, factor)| bytes != 0 && bytes.is_multiple_of(*factor))
        .map_or_else(
            || bytes.to_string(),
            |(unit, factor)| format!("{}{unit}", bytes / factor),
        )
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    digits.parse().ok().map(|number| (number, rest))
}

fn time_unit_hint(text: &str, unit: &str) -> String {
    match unit {
        "" if text.bytes().all(|c| c.is_ascii_digit()) => {
            format!("a duration needs its unit: `{text}s`, `{text}m` or `{text}h`")
        }
        _ => "the units are ms, s, m, h and d, such as `1h30m`".to_owned(),
    }
}

fn guess(number: u64, unit: &str) -> String {
    let first = unit.chars().next().filter(|c| "kmgt".contains(*c));
    format!("{number}{}", first.unwrap_or('m'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_durations() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("0s", 0),
            ("1m500ms", 60_500),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refuses_durations_with_a_hint() {
        for (text, hint) in [
            ("30", "`30s`"),
            ("", "30s"),
            ("1.5h", "1h30m"),
            ("10 m", "units are"),
            ("30m1h", "large to small"),
            ("5m5m", "once"),
            ("10min", "units are"),
            ("-1s", "whole numbers"),
            ("1_0s", "units are"),
            ("99999999999999999999s", "whole numbers"),
            ("400d", "365d"),
        ] {
            let got = duration(text).unwrap_err();
            assert!(got.contains(hint), "{text}: {got}");
        }
    }

    #[test]
    fn reads_and_refuses_sizes() {
        assert_eq!(size("64k"), Ok(65_536));
        assert_eq!(size("2G"), Ok(2 << 30));
        assert_eq!(size("1000"), Ok(1000));
        assert!(size("2gb").unwrap_err().contains("`2g`"));
        assert!(size("2gib").unwrap_err().contains("`2g`"));
        assert!(size("-1").is_err());
        assert!(size("1.5g").is_err());
        assert!(size("99999999t").unwrap_err().contains("largest"));
        assert!(size("").is_err());
    }

    proptest! {
        #[test]
        fn a_shown_duration_reads_back(millis in 0u64..LONGEST) {
            let time = Duration::from_millis(millis);
            prop_assert_eq!(duration(&show_duration(time)), Ok(time));
        }

        #[test]
        fn a_shown_size_reads_back(bytes in 0u64..1 << 50) {
            prop_assert_eq!(size(&show_size(bytes)), Ok(bytes));
        }

        #[test]
        fn never_panics(text in "\\PC{0,20}") {
            let _ = (duration(&text), size(&text));
        }
    }
}
