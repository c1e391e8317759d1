//! The times of the Kubernetes API as text.

use std::time::Duration;

/// Formats a `metav1.Time`: whole seconds since the Unix epoch.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{}Z", date_and_time(time))
}

/// Formats a `metav1.MicroTime`: always six digits.
pub(crate) fn microseconds(time: Duration) -> String {
    format!("{}.{:06}Z", date_and_time(time), time.subsec_micros())
}

/// Formats a time in UTC without jiff, which programs without a client do not have. The algorithm
/// is `civil_from_days` of Howard Hinnant.
fn date_and_time(time: Duration) -> String {
    let (days, rest) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        let at = |secs, micros| Duration::from_secs(secs) + Duration::from_micros(micros);
        assert_eq!(seconds(at(0, 999_999)), "1970-01-01T00:00:00Z");
        assert_eq!(seconds(at(951_782_399, 0)), "2000-02-28T23:59:59Z");
        assert_eq!(seconds(at(951_868_799, 0)), "2000-02-29T23:59:59Z");
        assert_eq!(seconds(at(4_107_542_400, 0)), "2100-03-01T00:00:00Z");
        assert_eq!(
            microseconds(at(1_735_689_599, 42)),
            "2024-12-31T23:59:59.000042Z"
        );
    }
}
