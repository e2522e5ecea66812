//! `POST /api/v1/enrollments`: allows one machine to become a worker. The one answer that holds a token.

use axum::extract::State;
use leasehold_control::enroll::Invite;
use leasehold_wire::api::enrollment::{CreateEnrollment, EnrollmentAnswer};
use leasehold_wire::api::secret::SecretText;
use leasehold_wire::api::worker::WorkerStatus;

use super::Api;
use super::access::By;
use super::answer::Made;
use super::problem::ApiError;
use super::request::{IdempotencyKey, JsonBody};

pub(super) async fn create(
    State(api): State<Api>,
    By(caller): By,
    IdempotencyKey(idempotency_key): IdempotencyKey,
    JsonBody(CreateEnrollment { worker, labels, ttl }): JsonBody<CreateEnrollment>,
) -> Result<Made<EnrollmentAnswer>, ApiError> {
    let invite = Invite { worker, labels: labels.clone(), ttl: Some(ttl), idempotency_key };
    let enrollment = api.control.create_enrollment(&caller, invite).await?;
    Ok(Made {
        new: !enrollment.replayed,
        answer: EnrollmentAnswer {
            id: enrollment.id,
            worker: enrollment.worker,
            labels,
            expires_at: enrollment.expires_at.into(),
            ingress: api.ingress_url.to_string(),
            token: SecretText::new(enrollment.token.reveal()),
            replaces: enrollment
                .replaces
                .map(|found| WorkerStatus::of(&found.worker, found.session.as_ref(), found.now.lease)),
        },
    })
}
