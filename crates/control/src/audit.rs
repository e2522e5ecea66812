//! Who changed what: pages of the audit.

use leasehold_core::limits;
use leasehold_store::call::AuditPage;
use leasehold_store::view::AuditEntry;

use crate::error::OperatorResult;
use crate::plane::ControlPlane;

impl ControlPlane {
    /// A page of the audit; at most [`limits::PAGE`] rows whatever `limit` says.
    pub async fn audit(&self, page: AuditPage, limit: usize) -> OperatorResult<Vec<AuditEntry>> {
        Ok(self.store().audit(page, limit.clamp(1, limits::PAGE)).await?)
    }
}
