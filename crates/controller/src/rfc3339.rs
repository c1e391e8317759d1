//! The times of the Kubernetes API as text.

/// Formats a `metav1.Time`, given as seconds since the Unix epoch.
pub(crate) fn seconds(seconds: i64) -> String {
    format!("{}Z", date_and_time(seconds))
}

/// Formats a `metav1.MicroTime`: always six digits. `nanoseconds` are those of the second.
pub(crate) fn microseconds(seconds: i64, nanoseconds: u32) -> String {
    format!("{}.{:06}Z", date_and_time(seconds), nanoseconds / 1000)
}

/// Formats a time in UTC. The algorithm is `civil_from_days` of Howard Hinnant.
fn date_and_time(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        for (time, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            // As Go formats them.
            (-1, "1969-12-31T23:59:59Z"),
            (253_402_351_199, "10000-01-01T13:59:59Z"),
            (-62_135_596_799, "0001-01-01T00:00:01Z"),
            (-62_162_121_600, "0000-02-29T00:00:00Z"),
        ] {
            assert_eq!(seconds(time), expected);
        }
        assert_eq!(
            microseconds(1_735_689_599, 42_999),
            "2024-12-31T23:59:59.000042Z"
        );
    }
}
