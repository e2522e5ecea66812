//! Flags that say `NAME=VALUE` several times, each name once: of two values nobody knows which one was meant.

use std::collections::BTreeMap;

use crate::failure::UsageError;

/// The pairs that `flag` said, each in this form, such as `NAME=VALUE`.
pub(crate) fn pairs(flag: &str, form: &str, said: &[String]) -> Result<BTreeMap<String, String>, UsageError> {
    let mut pairs = BTreeMap::new();
    for text in said {
        let Some((name, value)) = text.split_once('=') else {
            return Err(UsageError(format!("{flag}: got `{text}`, write {form}")));
        };
        if pairs.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(UsageError(format!("{flag}: `{name}` is said twice: say it once")));
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_said_once() {
        let of = |said: &[&str]| {
            let said: Vec<String> = said.iter().map(ToString::to_string).collect();
            pairs("--param", "NAME=VALUE", &said).map_err(|error| error.to_string())
        };
        assert_eq!(
            of(&["DAY=monday", "a=b=c"]),
            Ok([("DAY", "monday"), ("a", "b=c")].map(|(n, v)| (n.into(), v.into())).into())
        );
        assert_eq!(of(&["DAY"]), Err("--param: got `DAY`, write NAME=VALUE".to_owned()));
        for second in ["N=2", "N=1"] {
            assert_eq!(of(&["N=1", second]), Err("--param: `N` is said twice: say it once".to_owned()));
        }
    }
}
