//! What is understood, what it is called in canonical form, and what every mistake is told.

use proptest::prelude::*;

use super::*;

fn canonical(text: &str) -> String {
    text.parse::<Expression>().unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
}

fn refusal(text: &str) -> String {
    match text.parse::<Expression>() {
        Ok(read) => panic!("{text} was read as {read}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_people_write_is_understood() {
    for (text, expected) in [
        ("0 3 * * *", "0 3 * * *"),
        ("  0\t3 * * *  ", "0 3 * * *"),
        ("*/10 0 3 * * *", "*/10 0 3 * * *"),
        ("0 0 1 jan,Jul MON-FRI", "0 0 1 1,7 1-5"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * FRI-SUN", "0 0 * * 5-7"),
        ("0 0 * * 5-7/2", "0 0 * * 5-7/2"),
        ("0 0 * * SUN-SAT", "0 0 * * 0-6"),
        ("0 0 ? * ?", "0 0 * * *"),
        ("*/1 9-17/2 1,15,31-31 * *", "* 9-17/2 1,15,31 * *"),
        ("0 0 L,l-3,lw,15w * *", "0 0 L,L-3,LW,15W * *"),
        ("0 0 * * 5L,mon#2,sunl,7#1", "0 0 * * 5L,1#2,0L,0#1"),
        ("H H(0-7) H * *", "H H(0-7) H * *"),
        ("h/15 H(0-23) H(1-28) H H", "H/15 H H H H"),
        ("H(10-50)/5 * * * *", "H(10-50)/5 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@Hourly", "0 * * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@annually", "0 0 1 1 *"),
        ("@every 90s", "@every 1m30s"),
        ("@every 1500ms", "@every 1s500ms"),
        ("0 0 29 2 *", "0 0 29 2 *"),
        ("0 0 30 2 1", "0 0 30 2 1"),
        ("0 0 30 2,3 *", "0 0 30 2,3 *"),
    ] {
        assert_eq!(canonical(text), expected, "{text}");
        assert_eq!(canonical(expected), expected, "{text}");
    }
}

#[test]
fn a_mistake_is_told_with_its_place_and_what_is_allowed() {
    for (text, expected) in [
        ("", "0 fields: expected 5 or 6 fields"),
        ("* * *", "3 fields: expected 5 or 6 fields"),
        ("* * * * * * *", "7 fields: expected 5 or 6 fields"),
        ("@fortnightly", "`@fortnightly`: expected 5 or 6 fields"),
        ("@every", "`@every`: expected @every with a span from 1s to 366d"),
        ("@every 10ms", "`@every 10ms`: expected @every with a span from 1s to 366d"),
        ("@every 367d", "from 1s to 366d"),
        ("@every 1h 30m", "from 1s to 366d"),
        ("@daily 3", "2 fields"),
        ("60 * * * *", "`60` in the minute field: expected 0 to 59"),
        ("0 24 * * *", "`24` in the hour field: expected 0 to 23"),
        ("0 0 0 * *", "`0` in the day-of-month field: expected 1 to 31"),
        ("0 0 * 13 *", "`13` in the month field: expected 1 to 12 or JAN to DEC"),
        ("0 0 * * 8", "`8` in the day-of-week field: expected 0 to 7 or SUN to SAT"),
        ("99999999999 0 * * *", "in the minute field: expected 0 to 59"),
        ("0 0 * fbe *", "`fbe` in the month field"),
        ("0,,5 * * * *", "`` in the minute field"),
        ("0 ? * * *", "`?` in the hour field"),
        ("+1 * * * *", "`+1` in the minute field"),
        ("5/15 * * * *", "`5/15` in the minute field: expected a step within a range: `5-59/15` begins at 5"),
        ("*/90 * * * *", "`*/90` in the minute field: expected a step from 1 to 59"),
        ("*/60 * * * *", "a longer one leaves a single value"),
        ("*/0 * * * *", "`*/0` in the minute field: expected a step from 1 to 59"),
        ("*/ * * * *", "`*/` in the minute field"),
        ("10-20/11 * * * *", "expected a step from 1 to 10"),
        ("0 4-4/2 * * *", "expected no step: there is only one value"),
        ("0 22-5 * * *", "`22-5` in the hour field: expected a range that ends after it begins"),
        ("0 0 * * FRI-MON", "`FRI-MON` in the day-of-week field: expected a range that ends after it begins"),
        ("0 0 L-28 * *", "`L-28` in the day-of-month field"),
        ("0 0 32W * *", "`32W` in the day-of-month field"),
        ("0 0 1-5W * *", "`1-5W` in the day-of-month field"),
        ("0 0 W * *", "`W` in the day-of-month field"),
        ("0 0 * * L", "`L` in the day-of-week field"),
        ("0 0 * * 5#6", "`5#6` in the day-of-week field"),
        ("0 0 * * 5#0", "`5#0` in the day-of-week field"),
        ("H(1-70) * * * *", "`H(1-70)` in the minute field"),
        ("H1 * * * *", "`H1` in the minute field"),
        ("H(1) * * * *", "`H(1)` in the minute field"),
        ("0 0 H(20-30) * *", "`H(20-30)` in the day-of-month field"),
        ("30 2 30 2 *", "`30` in the day-of-month field: expected a day that some year has in one of these months"),
        ("0 0 31 4,6,9-11/2 *", "a day that some year has"),
        ("0 0 31W 2 *", "a day that some year has"),
    ] {
        let told = refusal(text);
        assert!(told.contains(expected), "{text:?}: {told}");
    }
    assert!(refusal(&format!("{}0 0 * * *", " ".repeat(130))).contains("at most 128 bytes"));
}

proptest! {
    #[test]
    fn no_text_panics(text in "[0-9*/,#?@LWHelh() -]{0,40}|.{0,40}") {
        if let Ok(read) = text.parse::<Expression>() {
            prop_assert_eq!(read.to_string().parse(), Ok(read));
        }
    }
}
