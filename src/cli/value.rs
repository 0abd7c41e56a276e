//! How long ago, as `clean` takes it: like a plan's times, and in days.

use std::time::Duration;

/// `30s`, `10m`, `1h30m`, `2d`, `0`; a number without a unit is refused, for it would be a guess.
pub fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let wrong = || "a time is written like 45s, 30m, 1h30m or 2d".to_owned();
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let mut after = rest[digits..].chars();
        let unit = match after.next() {
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3_600,
            Some('d') => 86_400,
            _ => return Err(wrong()),
        };
        rest = after.as_str();
        total = number
            .checked_mul(unit)
            .and_then(|seconds| total.checked_add(seconds))
            .filter(|seconds| *seconds <= 366 * 86_400)
            .ok_or("a time is at most a year")?;
    }
    if text.is_empty() {
        return Err(wrong());
    }
    Ok(Duration::from_secs(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("2d"), Ok(Duration::from_secs(172_800)));
        for bad in [
            "",
            "30",
            "-5m",
            "m",
            "1.5h",
            "5x",
            "99999999999999999999s",
            "400d",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
