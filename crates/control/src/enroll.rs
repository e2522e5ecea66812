//! Enrollment: an operator allows one machine, and that machine becomes a worker.
//!
//! The worker's name comes from the enrollment, never from what the machine says; of its certificate request only the key is
//! used, which its signature proves. (Protocol, *Identity* and *Sessions*.)

use std::collections::BTreeMap;

use leasehold_core::actor::Origin;
use leasehold_core::canonical::Value;
use leasehold_core::crypto::{EnrollmentToken, Ticket};
use leasehold_core::id::{EnrollmentId, TrustDomain, WorkerId};
use leasehold_core::join::JoinToken;
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::shape::is_name;
use leasehold_core::ticket::TicketKey;
use leasehold_core::time::{Entropy, Millis, UtcMillis};
use leasehold_store::call::{Enroll, NewEnrollment};
use leasehold_store::port::Unmet;
use leasehold_store::view::WorkerView;

use crate::admit::check_key;
use crate::error::{Denied, OperatorResult, ServiceError, WorkerResult, settle};
use crate::hints::Topic;
use crate::install::CheckedRequest;
use crate::plane::ControlPlane;
use crate::principal::Caller;

/// What an operator allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invite {
    /// The worker's name; one of chance if none.
    pub worker: Option<WorkerId>,
    /// Labels the worker gets.
    pub labels: BTreeMap<String, String>,
    /// How long the token lives; [`limits::ENROLLMENT_TTL`] if nothing is said.
    pub ttl: Option<Millis>,
    /// The caller's key: the same key with the same request gives the same token.
    pub idempotency_key: Option<String>,
}

/// A permission for one machine, with the token that is shown once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrollment {
    /// Its id.
    pub id: EnrollmentId,
    /// The worker it makes.
    pub worker: WorkerId,
    /// What is pasted on the new machine.
    pub token: JoinToken,
    /// When the token stops working.
    pub expires_at: UtcMillis,
    /// The worker of that name as it is, where there is one: whoever uses the token takes its place.
    pub replaces: Option<WorkerView>,
    /// Whether an earlier request with the same key made it.
    pub replayed: bool,
}

/// What a machine gets that became a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolledWorker {
    /// Who it is now.
    pub worker: WorkerId,
    /// Where it belongs.
    pub trust_domain: TrustDomain,
    /// Its certificate chain, DER, leaf first.
    pub chain: Vec<Vec<u8>>,
    /// The CAs that it may trust, DER.
    pub trust_bundle: Vec<Vec<u8>>,
    /// What its first registration spends.
    pub ticket: Ticket,
}

impl ControlPlane {
    /// Allows one machine to become a worker.
    pub async fn create_enrollment(&self, caller: &Caller, invite: Invite) -> OperatorResult<Enrollment> {
        let ttl = check(&invite).map_err(ServiceError::Refused)?;
        let now = self.utc();
        let keyed = invite.idempotency_key.as_ref().map(|key| Keyed::new(self.keys().tickets(), key, &invite, ttl));
        let (id, token) = match &keyed {
            Some(keyed) => (EnrollmentId::new(now, keyed), keyed.token.clone()),
            None => (EnrollmentId::new(now, self.entropy()), EnrollmentToken::new(self.entropy())),
        };
        let digest = token.digest();
        let token = JoinToken { token, ca: self.keys().ca_pin() };
        let worker = invite.worker.unwrap_or_else(|| self.name_of_chance());
        let new = NewEnrollment {
            id,
            worker: worker.clone(),
            labels: invite.labels,
            token: digest,
            expires_at: now.plus(ttl),
        };
        let expires_at = new.expires_at;
        let created = self.store().create_enrollment(caller.actor.clone(), new).await?;
        let (id, worker, expires_at, replayed) = match (created.into_result(), keyed) {
            (Ok(()), _) => (id, worker, expires_at, false),
            // The token is the key's: it is there from the same request, or from another with this key.
            (Err(Unmet::KeyReused), Some(keyed)) => {
                let found = self.store().find_enrollment(digest).await?;
                let found =
                    found.filter(|found| keyed.made(found.id)).ok_or(ServiceError::Refused(Denied::KeyReused))?;
                (found.id, found.worker, found.expires_at, true)
            }
            (Err(unmet), _) => return Err(ServiceError::Refused(Denied::of(&unmet, &worker))),
        };
        // For people: whoever uses the token takes that worker's place, whatever it does by then.
        let replaces = self.store().worker(&worker).await?;
        tracing::info!(worker.id = %worker, actor = %caller.actor, origin = %caller.origin, replayed, "worker invited");
        Ok(Enrollment { id, worker, token, expires_at, replaces, replayed })
    }

    /// A machine with an enrollment token becomes a worker. `request` is a PKCS #10 certificate request, DER. The only
    /// worker-facing service without a principal: this is where one comes from. `origin` is for the audit.
    pub async fn enroll(
        &self,
        token: &EnrollmentToken,
        request: &[u8],
        origin: Option<Origin>,
    ) -> WorkerResult<EnrolledWorker> {
        if request.len() > limits::JSON_BODY {
            return Err(crate::sessions::over("csr", request.len(), limits::JSON_BODY));
        }
        let request = CheckedRequest::read(request)
            .map_err(|refused| ServiceError::Refused(Refusal::new(RefusalCode::InvalidRequest, refused.to_string())))?;
        let Some(enrollment) = self.store().find_enrollment(token.digest()).await? else {
            return Err(ServiceError::Refused(Refusal::new(
                RefusalCode::Unauthenticated,
                "this enrollment token is unknown, used up or expired: make a new one with `leasehold worker enroll`",
            )));
        };
        let (certificate, certificate_expires_at) = self
            .keys()
            .worker_certificate(&enrollment.worker, &request, self.utc(), self.entropy())
            .map_err(|error| ServiceError::NotDone { reason: format!("signing the certificate failed: {error}") })?;
        let call = Enroll {
            token: token.digest(),
            public_key: request.public_key(),
            certificate,
            certificate_expires_at,
            origin,
        };
        let enrolled = settle(self.store().enroll(call).await)?;
        // A session under the worker's earlier identity is fenced now.
        self.hints().changed(&Topic::Worker(enrolled.worker.clone()));
        tracing::info!(worker.id = %enrolled.worker, "worker enrolled");
        Ok(EnrolledWorker {
            trust_domain: self.keys().trust_domain().clone(),
            chain: vec![enrolled.certificate],
            trust_bundle: vec![self.keys().ca_certificate().to_vec()],
            ticket: self.keys().tickets().first(&enrolled.worker, enrolled.enrollment),
            worker: enrolled.worker,
        })
    }

    fn name_of_chance(&self) -> WorkerId {
        let mut bytes = [0; 4];
        self.entropy().fill(&mut bytes);
        let chance = data_encoding::HEXLOWER.encode(&bytes);
        format!("worker-{chance}").parse().expect("hexadecimal characters make a DNS label")
    }
}

/// What an idempotency key makes of a request: nothing is stored for it, all of it is derived again by any replica.
struct Keyed {
    token: EnrollmentToken,
    /// What tells this request from another with the same key; the part of its id that is no time is made of it.
    fingerprint: [u8; 32],
}

impl Keyed {
    fn new(tickets: &TicketKey, key: &str, invite: &Invite, ttl: Millis) -> Self {
        let labels = invite.labels.iter().map(|(name, text)| (name, Value::text(text)));
        let worker = invite.worker.iter().map(|worker| ("worker", Value::text(worker.as_str())));
        let asked = [("labels", Value::map(labels)), ("ttl", Value::text(ttl.to_string()))];
        let request = Value::map(asked.into_iter().chain(worker)).to_bytes();
        Self { token: tickets.invitation(key), fingerprint: tickets.fingerprint(key, &request) }
    }

    /// Whether the enrollment `id` was made from this request.
    fn made(&self, id: EnrollmentId) -> bool {
        let mine = EnrollmentId::new(UtcMillis::new(0), self);
        id.as_bytes()[TIME_OF_ID..] == mine.as_bytes()[TIME_OF_ID..]
    }
}

/// The bytes of an id that hold when it was made.
const TIME_OF_ID: usize = 6;

impl Entropy for Keyed {
    fn fill(&self, bytes: &mut [u8]) {
        for (byte, part) in bytes.iter_mut().zip(self.fingerprint) {
            *byte = part;
        }
    }
}

fn check(invite: &Invite) -> Result<Millis, Denied> {
    let refused = |field: String, got: String, allowed: String| Denied::Invalid { field, got, allowed };
    if let Some(key) = &invite.idempotency_key {
        check_key(key)?;
    }
    let ttl = invite.ttl.unwrap_or(limits::ENROLLMENT_TTL);
    if ttl == Millis::ZERO || ttl > limits::ENROLLMENT_TTL_MAX {
        let allowed = format!("more than 0 and at most {}", limits::ENROLLMENT_TTL_MAX);
        return Err(refused("ttl".to_owned(), ttl.to_string(), allowed));
    }
    if invite.labels.len() > limits::LABELS {
        let allowed = format!("at most {}", limits::LABELS);
        return Err(refused("labels".to_owned(), invite.labels.len().to_string(), allowed));
    }
    for (key, text) in &invite.labels {
        let shown = format!("`{}`", text.chars().take(64).collect::<String>());
        if !is_name(key) {
            let allowed = "a name of letters, digits, `.`, `_`, `-` and `/`, such as site".to_owned();
            return Err(refused(
                "labels".to_owned(),
                format!("the key `{}`", key.chars().take(64).collect::<String>()),
                allowed,
            ));
        }
        if text.is_empty() || text.len() > limits::NAME_BYTES || text.chars().any(char::is_control) {
            let allowed = format!("1 to {} bytes on one line", limits::NAME_BYTES);
            return Err(refused(format!("labels.{key}"), shown, allowed));
        }
    }
    Ok(ttl)
}

#[cfg(test)]
mod tests;
