//! SPDX licence expressions, as far as a decision needs them: which licences would satisfy this expression?
//!
//! `OR` (also spelled `/` by old manifests) needs one side, `AND` both, `WITH` binds an exception to its licence.

/// A licence expression, or the reason why it is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expression {
    /// One licence, with its exception if there is one.
    Licence(String),
    /// Both must be accepted.
    Both(Box<Self>, Box<Self>),
    /// One must be accepted.
    Either(Box<Self>, Box<Self>),
}

impl Expression {
    /// Reads an expression.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let mut words = spaced.split_whitespace().peekable();
        let expression = either(&mut words)?;
        match words.next() {
            None => Ok(expression),
            Some(word) => Err(format!("unexpected `{word}` in `{text}`")),
        }
    }

    /// Whether the accepted licences satisfy this expression.
    pub(crate) fn is_satisfied_by(&self, accepted: &impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Licence(name) => accepted(name),
            Self::Both(left, right) => left.is_satisfied_by(accepted) && right.is_satisfied_by(accepted),
            Self::Either(left, right) => left.is_satisfied_by(accepted) || right.is_satisfied_by(accepted),
        }
    }
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words<'_>) -> Result<Expression, String> {
    let mut left = both(words)?;
    while words.next_if(|word| word.eq_ignore_ascii_case("or")).is_some() {
        left = Expression::Either(Box::new(left), Box::new(both(words)?));
    }
    Ok(left)
}

fn both(words: &mut Words<'_>) -> Result<Expression, String> {
    let mut left = licence(words)?;
    while words.next_if(|word| word.eq_ignore_ascii_case("and")).is_some() {
        left = Expression::Both(Box::new(left), Box::new(licence(words)?));
    }
    Ok(left)
}

fn licence(words: &mut Words<'_>) -> Result<Expression, String> {
    match words.next() {
        Some("(") => {
            let inside = either(words)?;
            match words.next() {
                Some(")") => Ok(inside),
                _ => Err("a bracket is not closed".to_owned()),
            }
        }
        Some(name) if name != ")" => {
            if words.next_if(|word| word.eq_ignore_ascii_case("with")).is_some() {
                let exception = words.next().ok_or("WITH names no exception")?;
                return Ok(Expression::Licence(format!("{name} WITH {exception}")));
            }
            Ok(Expression::Licence(name.to_owned()))
        }
        _ => Err("a licence is missing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_decide_as_spdx_says() {
        let accepted = |name: &str| matches!(name, "MIT" | "Apache-2.0" | "ISC");
        let cases = [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("GPL-3.0/MIT", true),
            ("MIT OR Apache-2.0 AND GPL-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("ISC AND (GPL-3.0 OR ISC)", true),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ];
        for (text, expected) in cases {
            let expression = Expression::parse(text).unwrap();
            assert_eq!(expression.is_satisfied_by(&accepted), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in ["", "MIT OR", "(MIT", "MIT Apache-2.0", "AND MIT )", "Apache-2.0 WITH"] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
    }
}
