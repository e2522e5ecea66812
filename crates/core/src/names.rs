//! Closed sets of names: one spelling each, the same in type, table, wire, command line and panel.

/// Defines an enum of unit variants with their stable names, `ALL`, `as_str`, `Display` and `FromStr`.
macro_rules! names {
    ($(#[$doc:meta])* pub enum $name:ident as $what:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::names::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(crate::names::UnknownName {
                        what: $what,
                        got: text.chars().take(64).collect(),
                        allowed: &[$($text),+],
                    }),
                }
            }
        }
    };
}

/// A text is none of the names of a closed set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{got}` is not a {what}: expected one of {}", allowed.join(", "))]
pub struct UnknownName {
    /// What the text should have named.
    pub what: &'static str,
    /// What was given, cut to 64 characters.
    pub got: String,
    /// The names there are.
    pub allowed: &'static [&'static str],
}
