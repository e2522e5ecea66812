//! How core's types stand in JSON: ids and names as their text, numbers as integers, tokens and bytes as base64url.
//!
//! Each module is used as `#[serde(with = "field::…")]`, so that a parsed message holds checked values only.

/// Devices: a list of their names.
pub(crate) mod devices {
    use leasehold_core::device::{DeviceId, Devices};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    #[derive(Serialize, Deserialize)]
    struct One(#[serde(with = "super::text")] DeviceId);

    pub(crate) fn serialize<S: Serializer>(devices: &Devices, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(devices.iter().map(|id| One(id.clone())))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Devices, D::Error> {
        let list = Vec::<One>::deserialize(deserializer)?;
        Devices::new(list.into_iter().map(|One(id)| id).collect()).map_err(de::Error::custom)
    }
}

/// Ids, digests and names of closed sets: their `Display` and `FromStr`.
pub(crate) mod text {
    use std::fmt::{self, Display};
    use std::marker::PhantomData;
    use std::str::FromStr;

    use serde::de::{self, Visitor};
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr,
        T::Err: Display,
        D: Deserializer<'de>,
    {
        deserializer.deserialize_str(Reader(PhantomData))
    }

    struct Reader<T>(PhantomData<T>);

    impl<T> Visitor<'_> for Reader<T>
    where
        T: FromStr,
        T::Err: Display,
    {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    /// The same where the field may be missing.
    pub(crate) mod option {
        use super::{Deserializer, Display, FromStr, Serializer};

        #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
        pub(crate) fn serialize<T: Display, S: Serializer>(
            value: &Option<T>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match value {
                Some(value) => super::serialize(value, serializer),
                None => serializer.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
        where
            T: FromStr,
            T::Err: Display,
            D: Deserializer<'de>,
        {
            super::deserialize(deserializer).map(Some)
        }
    }
}

/// Tokens: base64url; the text is wiped after reading.
pub(crate) mod token {
    use std::fmt;
    use std::marker::PhantomData;

    use leasehold_core::crypto::{Token, TokenKind};
    use serde::de::{self, Visitor};
    use serde::{Deserializer, Serializer};
    use zeroize::{Zeroize, Zeroizing};

    pub(crate) fn serialize<K: TokenKind, S: Serializer>(token: &Token<K>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(token.reveal()))
    }

    pub(crate) fn deserialize<'de, K: TokenKind, D: Deserializer<'de>>(deserializer: D) -> Result<Token<K>, D::Error> {
        deserializer.deserialize_string(Reader(PhantomData))
    }

    struct Reader<K>(PhantomData<K>);

    impl<K: TokenKind> Visitor<'_> for Reader<K> {
        type Value = Token<K>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("43 characters of base64url")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Token<K>, E> {
            Token::parse(text).map_err(E::custom)
        }

        fn visit_string<E: de::Error>(self, mut text: String) -> Result<Token<K>, E> {
            let token = self.visit_str(&text);
            text.zeroize();
            token
        }
    }
}

/// Counters and durations: integers from 0 to `i64::MAX`.
pub(crate) mod number {
    use leasehold_core::counter::{
        AttemptNumber, CallbackSequence, FenceNumber, LeaseGeneration, LeaseVersion, SessionGeneration, SessionVersion,
    };
    use leasehold_core::time::Millis;
    use serde::de::{Error, Unexpected};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// A number of core's that is never negative.
    pub(crate) trait Number: Sized + Copy {
        fn of(value: u64) -> Option<Self>;
        fn number(self) -> u64;
    }

    macro_rules! counters {
        ($($name:ident),+) => {$(
            impl Number for $name {
                fn of(value: u64) -> Option<Self> {
                    Self::new(value).ok()
                }

                fn number(self) -> u64 {
                    self.get()
                }
            }
        )+};
    }

    counters!(
        AttemptNumber,
        CallbackSequence,
        FenceNumber,
        LeaseGeneration,
        LeaseVersion,
        SessionGeneration,
        SessionVersion
    );

    impl Number for Millis {
        fn of(value: u64) -> Option<Self> {
            i64::try_from(value).is_ok().then_some(Self::new(value))
        }

        fn number(self) -> u64 {
            self.get().min(i64::MAX.unsigned_abs())
        }
    }

    pub(crate) fn serialize<T: Number, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        value.number().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, T: Number, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let value = u64::deserialize(deserializer)?;
        T::of(value).ok_or_else(|| D::Error::invalid_value(Unexpected::Unsigned(value), &"u64"))
    }

    /// The same where the field may be missing.
    pub(crate) mod option {
        use super::{Deserializer, Number, Serializer};

        #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
        pub(crate) fn serialize<T: Number, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
            match value {
                Some(value) => super::serialize(value, serializer),
                None => serializer.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, T: Number, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<T>, D::Error> {
            super::deserialize(deserializer).map(Some)
        }
    }
}

/// Wall-clock times: integer UTC milliseconds.
pub(crate) mod utc {
    use leasehold_core::time::UtcMillis;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(value: &UtcMillis, serializer: S) -> Result<S::Ok, S::Error> {
        value.get().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UtcMillis, D::Error> {
        i64::deserialize(deserializer).map(UtcMillis::new)
    }

    /// The same where the field may be missing.
    pub(crate) mod option {
        use super::{Deserializer, Serialize, Serializer, UtcMillis};

        #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
        pub(crate) fn serialize<S: Serializer>(value: &Option<UtcMillis>, serializer: S) -> Result<S::Ok, S::Error> {
            value.map(UtcMillis::get).serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UtcMillis>, D::Error> {
            super::deserialize(deserializer).map(Some)
        }
    }
}

/// Binary values (certificates, requests): base64url without padding.
pub(crate) mod binary {
    use std::fmt;

    use data_encoding::BASE64URL_NOPAD;
    use serde::de::{self, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64URL_NOPAD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_str(Reader)
    }

    struct Reader;

    impl Visitor<'_> for Reader {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes as base64url without padding")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
            BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    /// A list of them.
    pub(crate) mod list {
        use super::{Deserialize, Deserializer, Serialize, Serializer};

        #[derive(Serialize, Deserialize)]
        struct One(#[serde(with = "super")] Vec<u8>);

        pub(crate) fn serialize<S: Serializer>(list: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(list.iter().map(|bytes| One(bytes.clone())))
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
            let list = Vec::<One>::deserialize(deserializer)?;
            Ok(list.into_iter().map(|One(bytes)| bytes).collect())
        }
    }
}
