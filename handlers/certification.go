package handlers

import (
	"net/http"

	"integrityledger/domain"
)

// certificationAction is an action beside the integrity API, which takes a request of the month.
func certificationAction(handle handler, scope domain.Scope, body bodyRule) action {
	return action{handle: handle, scope: scope, body: body, monthly: true}
}

// certificationRead is certificationAction for what a replica may answer too.
func certificationRead(handle handler, scope domain.Scope) action {
	act := certificationAction(handle, scope, bodyNone)
	act.replicated = true
	return act
}

// certificationRoutes are those of artifacts, reviews, approvals and certificates.
func (s *server) certificationRoutes() []route {
	return []route{
		{"/api/v1/verify", apiRoute, map[string]action{http.MethodPost: certificationAction(s.verify, domain.VerifyRead, bodyRequired)}},
		{"/api/v1/artifacts", apiRoute, map[string]action{
			http.MethodGet:  certificationRead(s.listArtifacts, domain.ArtifactsRead),
			http.MethodPost: certificationAction(s.registerArtifact, domain.ArtifactsWrite, bodyContent),
		}},
		{"/api/v1/artifacts/{id}", apiRoute, map[string]action{http.MethodGet: certificationRead(s.artifact, domain.ArtifactsRead)}},
		{"/api/v1/artifacts/{id}/versions", apiRoute, map[string]action{
			http.MethodPost: certificationAction(s.registerLaterVersion, domain.ArtifactsWrite, bodyContent),
		}},
		{"/api/v1/artifacts/{id}/reviews", apiRoute, map[string]action{http.MethodPost: certificationAction(s.declareReview, domain.ReviewsWrite, bodyFile)}},
		{"/api/v1/analyses/{id}", apiRoute, map[string]action{http.MethodGet: certificationRead(s.analysis, domain.AnalysesRead)}},
		{"/api/v1/versions/{id}/approve", apiRoute, map[string]action{http.MethodPost: certificationAction(s.approve, domain.ApprovalsWrite, bodyRequired)}},
		{"/api/v1/versions/{id}/certificates", apiRoute, map[string]action{
			http.MethodPost: certificationAction(s.issueCertificate, domain.CertificatesWrite, bodyRequired),
		}},
		{"/api/v1/certificates/{id}/download", apiRoute, map[string]action{http.MethodGet: certificationAction(s.download, domain.CertificatesRead, bodyNone)}},
		{"/api/v1/certificates/{id}/revoke", apiRoute, map[string]action{
			http.MethodPost: certificationAction(s.revokeCertificate, domain.CertificatesWrite, bodyRequired),
		}},
		{"/api/v1/certificates/{id}/verify", publicRoute, get(s.verifyPublicly)},
		{"/api/v1/audit-events", apiRoute, map[string]action{http.MethodGet: certificationRead(s.auditEvents, domain.AuditRead)}},
		{"/api/v1/metrics/detectors", apiRoute, map[string]action{http.MethodGet: certificationRead(s.detectorMetrics, domain.MetricsRead)}},
		{"/api/v1/manifests/validate", apiRoute, map[string]action{http.MethodPost: certificationAction(s.validateManifest, domain.ArtifactsRead, bodyManifest)}},
	}
}
