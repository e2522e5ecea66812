//! How a person names a run: its id, or a beginning of it. What can be no such thing is refused before anybody is asked,
//! so that it is told as a mistake in the command line and never as a route that does not exist.

/// The length of a whole id.
const ID: usize = 36;

/// A run as it was typed.
pub(crate) fn run(text: &str) -> Result<String, String> {
    let is_beginning = (1..=ID).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if is_beginning {
        return Ok(text.to_owned());
    }
    Err(format!("expected a run's id, or the beginning of one: 1 to {ID} of 0-9, a-f and -"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_by_the_beginning_of_its_id() {
        let whole = "01a2298b-797d-7904-b3fe-abcda0a1208a";
        for text in ["0", "01a2298b-", whole] {
            assert_eq!(run(text).as_deref(), Ok(text));
        }
        for text in ["", "zzz", "../runs", "0 1", &format!("{whole}0"), &"a".repeat(100_000)] {
            assert!(run(text).is_err(), "{}", text.len());
        }
    }
}
