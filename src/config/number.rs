//! Numbers and durations as a person types them; what makes no sense is refused with a reason.

use std::time::Duration;

/// The longest time limit: a year.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// The largest number of agents at once.
const MOST_PARALLEL: usize = 256;

const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Agents at work at once, from 1.
pub(super) fn parallel(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(number) if (1..=MOST_PARALLEL).contains(&number) => Ok(number),
        _ => Err(format!("write a whole number from 1 to {MOST_PARALLEL}")),
    }
}

/// A count of tokens; zero allows nothing.
pub(super) fn tokens(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let digits = !plain.is_empty() && plain.bytes().all(|c| c.is_ascii_digit());
    match plain.parse::<u64>() {
        Ok(number) if digits => Ok(number),
        _ => Err("write a whole number of tokens, zero or more".to_owned()),
    }
}

/// US dollars; zero allows nothing.
pub(super) fn dollars(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 && !number.is_sign_negative() => {
            Ok(number)
        }
        _ => Err("write an amount in US dollars, zero or more, such as 2.50".to_owned()),
    }
}

/// `90s`, `30m`, `1h30m`, `2d`; units fall from large to small. A lone zero needs no unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time such as 90s, 30m or 1h30m".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut total, mut next) = (text, 0u64, 0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = UNITS.iter().position(|(name, _)| *name == &rest[..letters]);
        let unit = unit.filter(|unit| *unit >= next).ok_or_else(wrong)?;
        next = unit + 1;
        rest = &rest[letters..];
        total = number
            .checked_mul(UNITS[unit].1)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(wrong)?;
    }
    let total = Duration::from_millis(total);
    match text {
        "" => Err(wrong()),
        _ if total > LONGEST => Err("the longest time is 365d".to_owned()),
        _ => Ok(total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        for text in ["-1", "0", "1.5", "NaN", "", "many", "257", "+ 1"] {
            assert!(parallel(text).is_err(), "parallel {text}");
        }
        for text in ["-1", "1.5", "NaN", "", "abc", "1e6", "+5", "_"] {
            assert!(tokens(text).is_err(), "tokens {text}");
        }
        for text in ["-1", "-0", "NaN", "inf", "", "free", "1,5"] {
            assert!(dollars(text).is_err(), "dollars {text}");
        }
        for text in [
            "-1s",
            "30",
            "",
            "m",
            "1.5h",
            "30m1h",
            "5m5m",
            "1y",
            "400d",
            "99999999999999999999s",
            "é",
        ] {
            assert!(duration(text).is_err(), "duration {text}");
        }
    }

    #[test]
    fn numbers_are_read() {
        assert_eq!(parallel("8"), Ok(8));
        assert_eq!(tokens("20_000_000"), Ok(20_000_000));
        assert_eq!(tokens("0"), Ok(0));
        assert_eq!(dollars("2.50"), Ok(2.5));
        assert_eq!(dollars("0"), Ok(0.0));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration("1s500ms"), Ok(Duration::from_millis(1_500)));
    }
}
