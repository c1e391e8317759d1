use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time of the Kubernetes API. All years that four digits can express are in its range, which is
/// not so for `jiff::Timestamp`, and on some systems not for [`SystemTime`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixTime {
    /// The seconds since the Unix epoch, rounded down.
    pub seconds: i64,
    /// The nanoseconds after the second.
    pub nanoseconds: u32,
}

impl UnixTime {
    /// The start of 1970.
    pub const EPOCH: Self = Self {
        seconds: 0,
        nanoseconds: 0,
    };

    /// The start of the year 1. It is the zero value of Go's `time.Time`, and means "no time".
    const ZERO: Self = Self {
        seconds: -62_135_596_800,
        nanoseconds: 0,
    };

    /// Converts microseconds since the Unix epoch.
    pub fn from_micros(micros: i64) -> Self {
        Self {
            seconds: micros.div_euclid(1_000_000),
            nanoseconds: 1000 * micros.rem_euclid(1_000_000) as u32,
        }
    }

    /// Returns the microseconds since the Unix epoch.
    pub fn as_micros(self) -> i64 {
        let micros = self.seconds.saturating_mul(1_000_000);
        micros.saturating_add(i64::from(self.nanoseconds / 1000))
    }

    /// Parses a time as `metav1.Time` does, with Go's `time.Parse(time.RFC3339, text)`. Returns
    /// `None` for the zero time.
    ///
    /// # Errors
    ///
    /// Returns the reason if the text is no time.
    pub fn parse(text: &str) -> Result<Option<Self>, &'static str> {
        let time = rfc3339(&mut text.as_bytes()).ok_or("not an RFC 3339 time")?;
        Ok(Some(time).filter(|time| *time != Self::ZERO))
    }

    /// Returns `None` if the system cannot represent the time.
    pub fn to_system_time(self) -> Option<SystemTime> {
        let whole = Duration::from_secs(self.seconds.unsigned_abs());
        let second = match self.seconds < 0 {
            true => UNIX_EPOCH.checked_sub(whole),
            false => UNIX_EPOCH.checked_add(whole),
        };
        second?.checked_add(Duration::from_nanos(self.nanoseconds.into()))
    }
}

impl From<SystemTime> for UnixTime {
    fn from(time: SystemTime) -> Self {
        let whole = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self {
                seconds: whole(since),
                nanoseconds: since.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let rest = before.subsec_nanos();
                Self {
                    seconds: -whole(before) - i64::from(rest > 0),
                    nanoseconds: (1_000_000_000 - rest) % 1_000_000_000,
                }
            }
        }
    }
}

fn rfc3339(rest: &mut &[u8]) -> Option<UnixTime> {
    let year = digits(rest, 4)?;
    literal(rest, b'-')?;
    let month = digits(rest, 2).filter(|month| (1..=12).contains(month))?;
    literal(rest, b'-')?;
    let day = digits(rest, 2).filter(|day| (1..=days_in(year, month)).contains(day))?;
    literal(rest, b'T')?;
    // Go accepts an hour of one digit.
    let hour_digits = if rest.get(1) == Some(&b':') { 1 } else { 2 };
    let hour = digits(rest, hour_digits).filter(|hour| *hour < 24)?;
    literal(rest, b':')?;
    let minute = digits(rest, 2).filter(|minute| *minute < 60)?;
    literal(rest, b':')?;
    let second = digits(rest, 2).filter(|second| *second < 60)?;
    let mut nanoseconds = 0;
    if let [b'.' | b',', fraction @ ..] = *rest {
        let length = fraction
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        *rest = fraction;
        let exact = length.clamp(1, 9);
        nanoseconds = digits(rest, exact)? * 10_i64.pow(9 - exact as u32);
        // Go ignores further digits.
        *rest = rest.get(length - exact..)?;
    }
    let offset = match *rest {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), offset @ ..] => {
            *rest = offset;
            // Go's limits.
            let hours = digits(rest, 2).filter(|hours| *hours <= 24)?;
            literal(rest, b':')?;
            let minutes = digits(rest, 2).filter(|minutes| *minutes <= 60 && rest.is_empty())?;
            let offset = 3600 * hours + 60 * minutes;
            if *sign == b'+' { offset } else { -offset }
        }
        _ => return None,
    };
    let time_of_day = 3600 * hour + 60 * minute + second;
    Some(UnixTime {
        seconds: 86_400 * days_since_epoch(year, month, day) + time_of_day - offset,
        nanoseconds: nanoseconds as u32,
    })
}

/// Takes a number with this count of digits.
fn digits(rest: &mut &[u8], count: usize) -> Option<i64> {
    let (number, after) = rest.split_at_checked(count)?;
    *rest = after;
    number.iter().try_fold(0, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        Some(10 * number + digit)
    })
}

fn literal(rest: &mut &[u8], literal: u8) -> Option<()> {
    *rest = rest.strip_prefix(&[literal])?;
    Some(())
}

fn days_in(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The algorithm is `days_from_civil` of Howard Hinnant.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + day_of_year;
    146_097 * era + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of Go's `time.Parse`.
    #[test]
    fn times_parse_as_in_go() {
        for (text, seconds, nanoseconds) in [
            ("9999-12-31T23:59:59Z", 253_402_300_799, 0),
            (
                "9999-12-31T23:59:59.999999999Z",
                253_402_300_799,
                999_999_999,
            ),
            ("9999-12-31T23:59:59-14:00", 253_402_351_199, 0),
            ("9999-12-31T23:59:59+14:00", 253_402_250_399, 0),
            ("0001-01-01T00:00:00.5Z", -62_135_596_800, 500_000_000),
            ("0000-01-01T00:00:00Z", -62_167_219_200, 0),
            ("0000-01-01T00:00:00+14:00", -62_167_269_600, 0),
            ("0000-02-29T00:00:00Z", -62_162_121_600, 0),
            ("2000-02-29T00:00:00Z", 951_782_400, 0),
            ("1969-12-31T23:59:59Z", -1, 0),
            ("1969-12-31T23:59:59.5Z", -1, 500_000_000),
            ("1969-12-31T23:59:58.000001Z", -2, 1000),
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2024-01-02T3:04:05Z", 1_704_164_645, 0),
            ("2024-01-02T03:04:05,123Z", 1_704_164_645, 123_000_000),
            (
                "2024-01-02T03:04:05.1234567891234Z",
                1_704_164_645,
                123_456_789,
            ),
            ("2024-01-02T03:04:05.1+00:00", 1_704_164_645, 100_000_000),
            ("2024-01-02T03:04:05-00:00", 1_704_164_645, 0),
            ("2024-01-02T03:04:05+24:00", 1_704_078_245, 0),
            ("2024-01-02T03:04:05-24:60", 1_704_254_645, 0),
        ] {
            let time = UnixTime {
                seconds,
                nanoseconds,
            };
            assert_eq!(UnixTime::parse(text), Ok(Some(time)), "{text}");
            assert_eq!(
                time.to_system_time().map(UnixTime::from),
                Some(time),
                "{text}"
            );
            let micros = UnixTime::from_micros(time.as_micros());
            assert_eq!(micros.nanoseconds, nanoseconds / 1000 * 1000, "{text}");
        }
        for zero in [
            "0001-01-01T00:00:00Z",
            "0001-01-01T01:00:00+01:00",
            "0000-12-31T23:00:00-01:00",
        ] {
            assert_eq!(UnixTime::parse(zero), Ok(None), "{zero}");
        }
        for wrong in [
            "",
            "Z",
            "2024-01-02",
            "1900-02-29T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-04-31T00:00:00Z",
            "2024-01-00T00:00:00Z",
            "2024-13-02T03:04:05Z",
            "2024-00-02T03:04:05Z",
            "2024-1-02T03:04:05Z",
            "2024-01-02t03:04:05Z",
            "2024-01-02T03:04:05z",
            "2024-01-02 03:04:05Z",
            "2024-01-02T03:04:05",
            "2024-01-02T03:4:05Z",
            "2024-01-02T03:04:5Z",
            "2024-01-02T+3:04:05Z",
            "2024-01-02T03:04:05.Z",
            "2024-01-02T03:04:05.12a",
            "2024-01-02T03:04:05é",
            "2024-01-02T24:00:00Z",
            "2024-01-02T23:60:00Z",
            "2024-01-02T23:59:60Z",
            "2024-01-02T23:59:59.9Zx",
            "2024-01-02T03:04:05+25:00",
            "2024-01-02T03:04:05+00:61",
            "2024-01-02T03:04:05+0100",
            "2024-01-02T03:04:05+01",
            "2024-01-02T03:04:05*01:00",
            "2024-01-02T03:04:05+1:00",
            "2024-01-02T03:04:05+01:0",
            "2024-01-02T03:04:05+01:000",
            "10000-01-01T00:00:00Z",
            "+2024-01-02T03:04:05Z",
            "-001-01-02T03:04:05Z",
            " 2024-01-02T03:04:05Z",
            "2024-01-02T03:04:05Z ",
        ] {
            assert_eq!(
                UnixTime::parse(wrong),
                Err("not an RFC 3339 time"),
                "{wrong}"
            );
        }
    }
}
