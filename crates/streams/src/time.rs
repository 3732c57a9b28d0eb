//! The calendar: what year, month and hour a time stands for, always in UTC, and how a time is written (RFC 3339). A time is
//! a number of microseconds since 1970 and may lie before it. Leap seconds are not known.

pub const SECOND: i64 = 1_000_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;

/// What `date` shows, but for the time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    pub year: i64,
    pub month: i64,
    pub day: i64,
}

/// The date of a time. Counted in eras of 400 years that begin in March, so that the day of a leap year comes last.
pub fn date(at: i64) -> Date {
    let days = at.div_euclid(DAY) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    Date { year: year_of_era + era * 400 + i64::from(month <= 2), month, day }
}

/// The days from 1970 to a date.
fn days(date: Date) -> i64 {
    let year = date.year - i64::from(date.month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = (date.month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + date.day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// 1 is Monday, 7 is Sunday.
pub fn weekday(at: i64) -> i64 {
    (at.div_euclid(DAY) + 3).rem_euclid(7) + 1
}

pub fn hour(at: i64) -> i64 {
    at.rem_euclid(DAY) / HOUR
}

pub fn minute(at: i64) -> i64 {
    at.rem_euclid(HOUR) / MINUTE
}

pub fn second(at: i64) -> i64 {
    at.rem_euclid(MINUTE) / SECOND
}

/// The last multiple of `step` that is not after `at`; `at` itself where there is no step.
pub fn truncate(at: i64, step: i64) -> i64 {
    if step <= 0 { at } else { at.saturating_sub(at.rem_euclid(step)) }
}

/// `2026-11-16T15:50:34.123456Z`. Nothing of a year that is not written with four digits.
pub fn format(at: i64) -> Option<String> {
    let date = date(at);
    if !(0..=9999).contains(&date.year) {
        return None;
    }
    let (micros, Date { year, month, day }) = (at.rem_euclid(SECOND), date);
    let (hour, minute, second) = (hour(at), minute(at), second(at));
    Some(match micros {
        0 => format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"),
        micros => format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"),
    })
}

/// Reads RFC 3339: `2026-11-16T15:50:34Z`, `2026-11-16 12:50:34.5-03:00`. What is finer than a microsecond is dropped.
pub fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() < 20 || bytes.len() > 64 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    if !matches!(bytes[10], b'T' | b't' | b' ') || bytes[13] != b':' || bytes[16] != b':' {
        return None;
    }
    let date = Date { year: number(&bytes[..4])?, month: number(&bytes[5..7])?, day: number(&bytes[8..10])? };
    let (hour, minute, second) = (number(&bytes[11..13])?, number(&bytes[14..16])?, number(&bytes[17..19])?);
    let long = date.month >= 1 && date.month <= 12 && date.day >= 1 && date.day <= month_days(date.year, date.month);
    // A leap second counts as the first of the next minute.
    if !long || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = &bytes[19..];
    let mut micros = 0;
    if let [b'.', fraction @ ..] = rest {
        let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let scale = |n: usize| 10i64.pow(5 - n as u32);
        micros = fraction[..digits].iter().take(6).enumerate().map(|(n, b)| i64::from(b - b'0') * scale(n)).sum();
        rest = &fraction[digits..];
    }
    let offset = match rest {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * HOUR + minutes * MINUTE) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    Some(days(date) * DAY + hour * HOUR + minute * MINUTE + second * SECOND + micros - offset)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, b| b.is_ascii_digit().then(|| sum * 10 + i64::from(b - b'0')))
}

fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, at) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59.999999Z", -1),
            ("2000-02-29T12:00:00Z", 951_825_600 * SECOND),
            ("2026-11-16T15:50:34.500000Z", 1_794_844_234 * SECOND + 500_000),
        ] {
            assert_eq!(parse(text), Some(at), "{text}");
            assert_eq!(format(at).as_deref(), Some(text));
        }
        assert_eq!(parse("2026-11-16 12:50:34-03:00"), parse("2026-11-16T15:50:34Z"));
        assert_eq!(parse("2026-11-16T15:50:34.1234567Z"), parse("2026-11-16T15:50:34.123456Z"));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026-11-16",
            "2026-11-16T15:50:34",
            "2026-13-16T15:50:34Z",
            "2026-02-29T15:50:34Z",
            "2026-11-16T24:50:34Z",
            "2026-11-16T15:50:34.Z",
            "2026-11-16T15:50:34+3:00",
            "2026-11-16T15:50:34Zé",
            "é026-11-16T15:50:34Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn parts_of_a_time_are_those_of_the_calendar() {
        let at = parse("2026-11-16T15:50:34Z").unwrap();
        assert_eq!(date(at), Date { year: 2026, month: 11, day: 16 });
        assert_eq!((weekday(at), hour(at), minute(at), second(at)), (1, 15, 50, 34));
        assert_eq!(weekday(-1), 3);
        assert_eq!(format(truncate(at, HOUR)).as_deref(), Some("2026-11-16T15:00:00Z"));
        assert_eq!(truncate(-1, SECOND), -SECOND);
        assert_eq!(truncate(7, 0), 7);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(at in -62_167_219_200_000_000i64..253_402_300_800_000_000) {
            let text = format(at).unwrap();
            prop_assert_eq!(parse(&text), Some(at));
        }

        #[test]
        fn any_number_has_a_date_and_any_text_an_answer(at in any::<i64>(), text in ".{0,40}") {
            let date = date(at);
            prop_assert!((1..=12).contains(&date.month) && (1..=31).contains(&date.day));
            prop_assert!(at.div_euclid(DAY) == days(date));
            let _ = (format(at), parse(&text), weekday(at), truncate(at, at));
        }
    }
}
