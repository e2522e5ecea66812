//! Who changed what: pages of the audit.

use leasehold_core::limits;
use leasehold_store::view::AuditEntry;

use crate::error::OperatorResult;
use crate::plane::ControlPlane;

impl ControlPlane {
    /// A page of the audit after row `after`, oldest first; at most [`limits::PAGE`] rows whatever `limit` says.
    pub async fn audit(&self, after: Option<u64>, limit: usize) -> OperatorResult<Vec<AuditEntry>> {
        Ok(self.store().audit(after, limit.clamp(1, limits::PAGE)).await?)
    }
}
