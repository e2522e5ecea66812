//! Enrollment: an operator allows one machine, and that machine becomes a worker.
//!
//! The worker's name comes from the enrollment, never from what the machine says; of its certificate request only the key is
//! used, which its signature proves. (Protocol, *Identity* and *Sessions*.)

use std::collections::BTreeMap;

use leasehold_core::actor::Origin;
use leasehold_core::crypto::{EnrollmentToken, Ticket};
use leasehold_core::id::{EnrollmentId, TrustDomain, WorkerId};
use leasehold_core::join::JoinToken;
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, RefusalCode};
use leasehold_core::shape::is_name;
use leasehold_core::time::{Millis, UtcMillis};
use leasehold_store::call::{Enroll, NewEnrollment};
use leasehold_store::view::WorkerView;

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
        let worker = invite.worker.unwrap_or_else(|| self.name_of_chance());
        let token = JoinToken { token: EnrollmentToken::new(self.entropy()), ca: self.keys().ca_pin() };
        let enrollment = NewEnrollment {
            id: EnrollmentId::new(now, self.entropy()),
            worker: worker.clone(),
            labels: invite.labels,
            token: token.token.digest(),
            expires_at: now.plus(ttl),
        };
        // For people: whoever uses the token takes that worker's place, whatever it does by then.
        let replaces = self.store().worker(&worker).await?;
        let (id, expires_at) = (enrollment.id, enrollment.expires_at);
        let created = self.store().create_enrollment(caller.actor.clone(), enrollment).await?;
        created.into_result().map_err(|unmet| ServiceError::Refused(Denied::of(&unmet, &worker)))?;
        tracing::info!(worker.id = %worker, actor = %caller.actor, origin = %caller.origin, "worker invited");
        Ok(Enrollment { id, worker, token, expires_at, replaces })
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

fn check(invite: &Invite) -> Result<Millis, Denied> {
    let refused = |field: String, got: String, allowed: String| Denied::Invalid { field, got, allowed };
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
