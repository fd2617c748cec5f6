package handlers

import (
	"net/http"

	"integrityledger/domain"
)

// older is an action beside the integrity API, which takes a request of the month.
func older(handle handler, scope domain.Scope, body bodyRule) action {
	return action{handle: handle, scope: scope, body: body, monthly: true}
}

// olderRead is older for what a replica may answer too.
func olderRead(handle handler, scope domain.Scope) action {
	act := older(handle, scope, bodyNone)
	act.replicated = true
	return act
}

// workflowRoutes are those of the older workflow of review and certificates.
func (s *server) workflowRoutes() []route {
	return []route{
		{"/api/v1/verify", apiRoute, map[string]action{http.MethodPost: older(s.verify, domain.VerifyRead, bodyRequired)}},
		{"/api/v1/artifacts", apiRoute, map[string]action{
			http.MethodGet:  olderRead(s.listArtifacts, domain.ArtifactsRead),
			http.MethodPost: older(s.registerArtifact, domain.ArtifactsWrite, bodyContent),
		}},
		{"/api/v1/artifacts/{id}", apiRoute, map[string]action{http.MethodGet: olderRead(s.artifact, domain.ArtifactsRead)}},
		{"/api/v1/artifacts/{id}/versions", apiRoute, map[string]action{
			http.MethodPost: older(s.registerLaterVersion, domain.ArtifactsWrite, bodyContent),
		}},
		{"/api/v1/artifacts/{id}/reviews", apiRoute, map[string]action{http.MethodPost: older(s.declareReview, domain.ReviewsWrite, bodyFile)}},
		{"/api/v1/analyses/{id}", apiRoute, map[string]action{http.MethodGet: olderRead(s.analysis, domain.AnalysesRead)}},
		{"/api/v1/versions/{id}/approve", apiRoute, map[string]action{http.MethodPost: older(s.approve, domain.ApprovalsWrite, bodyRequired)}},
		{"/api/v1/versions/{id}/certificates", apiRoute, map[string]action{
			http.MethodPost: older(s.issueCertificate, domain.CertificatesWrite, bodyRequired),
		}},
		{"/api/v1/certificates/{id}/download", apiRoute, map[string]action{http.MethodGet: older(s.download, domain.CertificatesRead, bodyNone)}},
		{"/api/v1/certificates/{id}/revoke", apiRoute, map[string]action{
			http.MethodPost: older(s.revokeCertificate, domain.CertificatesWrite, bodyRequired),
		}},
		{"/api/v1/certificates/{id}/verify", publicRoute, get(s.verifyPublicly)},
		{"/api/v1/audit-events", apiRoute, map[string]action{http.MethodGet: olderRead(s.auditEvents, domain.AuditRead)}},
		{"/api/v1/metrics/detectors", apiRoute, map[string]action{http.MethodGet: olderRead(s.detectorMetrics, domain.MetricsRead)}},
		{"/api/v1/manifests/validate", apiRoute, map[string]action{http.MethodPost: older(s.validateManifest, domain.ArtifactsRead, bodyManifest)}},
	}
}
