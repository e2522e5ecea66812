//! Who is told what about the runs of a task. Addresses are secrets: they let whoever knows them write to people.

use std::collections::{BTreeMap, BTreeSet};

use super::environment::read_secret_name;
use crate::canonical::Value;
use crate::id::SecretName;
use crate::shape::Field;

names! {
    /// What people are told about.
    pub enum NotifyOn as "notification cause" {
        /// A run succeeded.
        Succeeded = "succeeded",
        /// A run failed.
        Failed = "failed",
        /// A run was cancelled.
        Cancelled = "cancelled",
        /// A run ran into its timeout.
        TimedOut = "timed_out",
        /// A run is lost.
        Lost = "lost",
        /// The first success after one of these.
        Recovered = "recovered",
    }
}

names! {
    /// How people are told.
    pub enum Channel as "notification channel" {
        /// A call to an address.
        Webhook = "webhook",
        /// ntfy.
        Ntfy = "ntfy",
        /// Gotify.
        Gotify = "gotify",
        /// Telegram.
        Telegram = "telegram",
        /// Bark.
        Bark = "bark",
        /// DingTalk.
        Dingtalk = "dingtalk",
        /// WeCom.
        Wecom = "wecom",
        /// ServerChan.
        Serverchan = "serverchan",
        /// Mail.
        Mail = "mail",
    }
}

/// Who is told what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notify {
    /// What people are told about.
    pub on: BTreeSet<NotifyOn>,
    /// How, each with the secret that holds its address.
    pub channels: BTreeMap<Channel, SecretName>,
}

impl Notify {
    pub(super) fn read(field: &Field<'_>) -> Option<Self> {
        let mut keys = vec!["on"];
        keys.extend(Channel::ALL.iter().map(|channel| channel.as_str()));
        let table = field.table(&keys)?;
        let on = table.optional("on").map_or_else(
            || BTreeSet::from([NotifyOn::Failed, NotifyOn::TimedOut, NotifyOn::Lost]),
            |f| f.set(NotifyOn::ALL.len(), |member| member.named(NotifyOn::ALL)),
        );
        let mut channels = BTreeMap::new();
        for channel in Channel::ALL {
            let Some(target) = table.optional(channel.as_str()) else { continue };
            if let Some(secret) = target.table(&["secret"]).and_then(|table| read_secret_name(&table)) {
                channels.insert(*channel, secret);
            }
        }
        let is_named = |channel: &Channel| table.has(channel.as_str()) || table.is_misspelled(channel.as_str());
        if !Channel::ALL.iter().any(is_named) {
            table.conflict(
                "",
                "no channel",
                "at least one of webhook, ntfy, gotify, telegram, bark, dingtalk, wecom, serverchan, mail",
            );
        }
        Some(Self { on, channels })
    }

    pub(super) fn to_value(&self) -> Value {
        let mut entries = vec![("on", Value::texts(self.on.iter().map(|on| on.as_str())))];
        for (channel, secret) in &self.channels {
            entries.push((channel.as_str(), Value::map([("secret", Value::text(secret.as_str()))])));
        }
        Value::map(entries)
    }
}
