// Package api is the face for programs: a method and a path for each action, as published in the OpenAPI documents.
package api

import (
	"net/http"
	"slices"

	"integrityledger/domain"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/wire"
)

// API is the face for programs.
type API struct{ *action.Actions }

// Endpoints returns all endpoints of the API.
func (s API) Endpoints() []edge.Endpoint {
	return slices.Concat(s.integrity(), s.public(), s.certification(), s.account(), s.organization(), s.oauth())
}

// resourceMetadata tells clients where to get tokens (RFC 9728). It is served only under the path of the ordinary MCP
// endpoint. At the root it would also apply to the integrity endpoint, which accepts only API keys.
func (s API) resourceMetadata(*http.Request) (any, error) {
	raw, err := edge.Encode(wire.ProtectedResource{
		Resource: s.OAuth.Audience, AuthorizationServers: []string{s.OAuth.Issuer}, ScopesSupported: domain.OAuthScopes(),
		BearerMethods: []string{"header"}, ResourceName: "Integrity Ledger",
	})
	return edge.Cacheable(raw, edge.JSONType), err
}

// inclusionHeader says whether evidence has a proof of inclusion, so that a client that needs one knows whether to ask
// again.
const inclusionHeader = "Integrity-Inclusion"

// evidenceFile answers evidence as a file, without an envelope.
func evidenceFile(e action.Exported) edge.Response {
	return edge.Response{Data: e.Evidence, Bare: true, Header: http.Header{inclusionHeader: {string(e.Inclusion)}}}
}

// feedPage answers a page of the feed with its epoch in meta.
func feedPage(p action.FeedPage) edge.Response { return edge.Response{Data: p.Feed, Epoch: &p.Epoch} }

// queued answers a replay with 202, or with 200 if the events were only counted.
func queued(r wire.Replay) edge.Response {
	if r.DryRun {
		return edge.Response{Data: r}
	}
	return edge.Response{Status: http.StatusAccepted, Data: r}
}

// integrity returns the endpoints of hash-only registration.
func (s API) integrity() []edge.Endpoint {
	const integrity = "/api/v1/integrity"
	write := edge.Policy{Scope: domain.IntegrityWrite, Body: edge.BodyRequired, Judged: true}
	admin := edge.Policy{Scope: domain.IntegrityAdmin, Body: edge.BodyRequired}
	adminRead := edge.Policy{Scope: domain.IntegrityAdmin, NoQuery: true}
	change := edge.Policy{Scope: domain.IntegrityAdmin, Body: edge.BodyRequired, TakesAway: true}
	return []edge.Endpoint{
		edge.Post(
			integrity+"/records",
			edge.Do(domain.ReadDeclaration, edge.CreatedOnce(action.Single(s.Service, s.Register))), write,
		),
		edge.Get(
			integrity+"/records", edge.Do(action.ReadRecords, s.FindRecords),
			edge.Policy{Scope: domain.IntegrityRead, Replica: true},
		),
		edge.Post(
			integrity+"/records/batch", edge.OfRequest(s.RegisterBatch),
			edge.Policy{Scope: domain.IntegrityWrite, Body: edge.BodyBatch},
		),
		edge.Post(
			integrity+"/records/evidence", edge.Do(action.ReadExports, s.ExportMany),
			edge.Policy{Scope: domain.IntegrityRead, Body: edge.BodyRequired},
		),
		edge.Post(
			integrity+"/reservations",
			edge.Do(domain.ReadVersionReference, edge.CreatedOnce(action.Single(s.Service, s.Reserve))), write,
		),
		edge.Get(
			integrity+"/reservations", edge.Do(action.ReadReservations, s.ListReservations),
			edge.Policy{Scope: domain.IntegrityRead, Replica: true},
		),
		edge.Delete(
			integrity+"/reservations/{publicId}", edge.Do(edge.ReadPublicID, action.Single(s.Service, s.Release)),
			edge.Policy{Scope: domain.IntegrityWrite, NoQuery: true, Judged: true, TakesAway: true},
		),
		edge.Get(
			integrity+"/records/{publicId}", edge.Do(edge.ReadPublicID, s.Record),
			edge.Policy{Scope: domain.IntegrityRead, Replica: true, NoQuery: true, Judged: true},
		),
		edge.Get(
			integrity+"/records/{publicId}/evidence", edge.Do(action.ReadExport, edge.Viewed(s.Export, evidenceFile)),
			edge.Policy{Scope: domain.IntegrityRead, Judged: true},
		),
		edge.Get(
			integrity+"/records/{publicId}/inclusion", edge.Do(edge.ReadPublicID, s.Inclusion),
			edge.Policy{Scope: domain.IntegrityRead, NoQuery: true},
		),
		edge.Get(
			integrity+"/records/{publicId}/tlog-proof", edge.Do(action.ReadProof, s.Proof),
			edge.Policy{Scope: domain.IntegrityRead, Answer: edge.AsFile},
		),
		edge.Get(
			integrity+"/records/{publicId}/report", edge.Do(action.ReadReport, s.Report),
			edge.Policy{Scope: domain.IntegrityRead, Answer: edge.AsFile},
		),
		edge.Post(
			integrity+"/records/{publicId}/revoke", edge.Do(action.ReadRevoke, action.Single(s.Service, s.Revoke)),
			edge.Policy{Scope: domain.IntegrityRevoke, Body: edge.BodyOptional, Judged: true, TakesAway: true},
		),
		edge.Get(
			integrity+"/lookup", edge.Do(action.ReadLookup, s.Lookup),
			edge.Policy{Scope: domain.IntegrityRead, Replica: true, Judged: true},
		),
		edge.Get(
			integrity+"/changes", edge.Do(action.ReadLongPoll, edge.Viewed(s.Changes, feedPage)),
			edge.Policy{Scope: domain.IntegrityRead, Replica: true, Compressed: true},
		),
		edge.Get(
			integrity+"/usage", edge.Do(edge.ReadNothing, s.Usage),
			edge.Policy{Scope: domain.IntegrityRead, NoQuery: true, Judged: true},
		),
		edge.Get(
			integrity+"/usage/entries", edge.Do(s.ReadUsageEntries, s.UsageEntries), edge.Policy{Scope: domain.IntegrityRead},
		),

		edge.Get(
			integrity+"/companies", edge.Do(action.ReadCompanies, s.ListCompanies),
			edge.Policy{Scope: domain.IntegrityRead, Replica: true},
		),
		edge.Post(integrity+"/companies", edge.Do(action.ReadCompany, edge.CreatedOnce(s.CreateCompany)), admin),
		edge.Patch(integrity+"/companies/{companyId}", edge.Do(action.ReadCompanyStatus, s.SetCompanyStatus), change),
		edge.Get(
			integrity+"/companies/{companyId}/access", edge.Do(action.ReadKeysOfCompany, s.ListAccess),
			edge.Policy{Scope: domain.IntegrityAdmin},
		),
		edge.Post(integrity+"/companies/{companyId}/access", edge.Do(action.ReadAccess, s.SetAccess), change),
		edge.Get(
			integrity+"/companies/{companyId}/webhooks", edge.Do(action.ReadWebhooksOfCompany, s.ListWebhookAccess),
			edge.Policy{Scope: domain.IntegrityAdmin},
		),
		edge.Post(integrity+"/companies/{companyId}/webhooks", edge.Do(action.ReadWebhookAccess, s.SetWebhookAccess), change),

		edge.Get(integrity+"/webhooks", edge.Do(edge.ReadNothing, s.ListWebhooks), adminRead),
		edge.Post(integrity+"/webhooks", edge.Do(s.ReadWebhook, edge.Created(s.CreateWebhook)), admin),
		edge.Get(integrity+"/webhooks/{webhookId}", edge.Do(action.ReadWebhookID, s.Webhook), adminRead),
		edge.Patch(integrity+"/webhooks/{webhookId}", edge.Do(s.ReadWebhookChange, s.UpdateWebhook), change),
		edge.Delete(
			integrity+"/webhooks/{webhookId}", edge.Do(action.ReadWebhookID, s.DeleteWebhook),
			edge.Policy{Scope: domain.IntegrityAdmin, NoQuery: true, TakesAway: true},
		),
		edge.Post(
			integrity+"/webhooks/{webhookId}/secret/rotate", edge.Do(action.ReadSecretRotation, s.RotateSecret),
			edge.Policy{Scope: domain.IntegrityAdmin, Body: edge.BodyOptional},
		),
		edge.Post(
			integrity+"/webhooks/{webhookId}/test", edge.Do(action.ReadWebhookID, edge.Accepted(s.TestWebhook)),
			edge.Policy{Scope: domain.IntegrityAdmin, Body: edge.BodyOptional, Queues: true},
		),
		edge.Post(
			integrity+"/webhooks/{webhookId}/replay", edge.Do(action.ReadReplay, edge.Viewed(s.Replay, queued)),
			edge.Policy{Scope: domain.IntegrityAdmin, Body: edge.BodyRequired, Queues: true},
		),
		edge.Get(
			integrity+"/webhooks/{webhookId}/deliveries", edge.Do(action.ReadDeliveries, s.ListDeliveries),
			edge.Policy{Scope: domain.IntegrityAdmin},
		),
		edge.Post(
			integrity+"/webhooks/deliveries/{deliveryId}/redeliver", edge.Do(action.ReadDeliveryID, edge.Accepted(s.Redeliver)),
			edge.Policy{Scope: domain.IntegrityAdmin, Body: edge.BodyOptional, Queues: true},
		),
	}
}

// public returns the endpoints that need no key. Pages of every origin may read their answers.
func (s API) public() []edge.Endpoint {
	document := edge.Policy{Caller: edge.Anyone, Bucket: edge.Pages, Answer: edge.AsFile, AnyOrigin: true, NoQuery: true}
	return []edge.Endpoint{
		edge.Get(
			"/api/public/integrity/{publicId}", edge.Do(action.ReadComparison, s.Compare),
			edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute, AnyOrigin: true},
		),
		edge.Get(
			"/api/public/integrity/{publicId}/receipt", edge.Do(edge.ReadPublicID, s.Receipt),
			edge.Policy{Caller: edge.Anyone, Bucket: edge.Pages, AnyOrigin: true, NoQuery: true},
		),
		edge.Get("/api/public/integrity/{publicId}/tlog-proof", edge.Do(edge.ReadPublicID, s.PublicProof), document),
		edge.Get(
			"/api/public/integrity/{publicId}/report", edge.OfRequest(s.PublicReport),
			edge.Policy{Caller: edge.Anyone, Bucket: edge.Pages, Answer: edge.AsFile, AnyOrigin: true},
		),
		edge.Get(
			"/api/public/integrity/{publicId}/publisher", edge.Do(edge.ReadPublicID, s.PublisherStatement),
			edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute, AnyOrigin: true, NoQuery: true},
		),
		edge.Get(
			"/api/v1/certificates/{id}/verify", edge.Do(action.ReadPublicVerification, s.VerifyPublished),
			edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute, AnyOrigin: true},
		),
		edge.Get("/api/public/log/checkpoint", edge.Do(edge.ReadNothing, s.Checkpoint), document),
		edge.Get("/api/public/log/independence", edge.Do(edge.ReadNothing, s.IndependenceDocument), document),
		edge.Get("/api/public/log/keys", edge.Do(edge.ReadNothing, s.KeySetProof), document),
		edge.Get("/api/public/log/tile/{tile:.+}", edge.Do(action.ReadTile, s.Tile), document),
		edge.Get(
			"/api/public/log/timestamps", edge.Do(action.ReadTimestamps, s.Timestamps),
			edge.Policy{Caller: edge.Anyone, Bucket: edge.Pages, Answer: edge.AsFile, AnyOrigin: true},
		),
	}
}

// certification returns the endpoints of artifacts, reviews, approvals and certificates. Each call consumes a monthly
// request.
func (s API) certification() []edge.Endpoint {
	content := edge.Policy{Scope: domain.ArtifactsWrite, Monthly: true, Body: edge.BodyContent}
	certify := edge.Policy{Scope: domain.CertificatesWrite, Monthly: true, Body: edge.BodyRequired}
	return []edge.Endpoint{
		edge.Post(
			"/api/v1/verify", edge.Do(action.ReadVerification, s.VerifyHash),
			edge.Policy{Scope: domain.VerifyRead, Monthly: true, Body: edge.BodyRequired},
		),
		edge.Get(
			"/api/v1/artifacts", edge.Do(edge.ReadPage, s.ListArtifacts),
			edge.Policy{Scope: domain.ArtifactsRead, Monthly: true, Replica: true},
		),
		edge.Post("/api/v1/artifacts", edge.OfRequest(s.RegisterVersion), content),
		edge.Get(
			"/api/v1/artifacts/{id}", edge.Do(action.ReadArtifactQuestion, s.Artifact),
			edge.Policy{Scope: domain.ArtifactsRead, Monthly: true, Replica: true},
		),
		edge.Post("/api/v1/artifacts/{id}/versions", edge.OfRequest(s.RegisterVersion), content),
		edge.Post(
			"/api/v1/artifacts/{id}/reviews", edge.OfRequest(s.DeclareReview),
			edge.Policy{Scope: domain.ReviewsWrite, Monthly: true, Body: edge.BodyFile},
		),
		edge.Get(
			"/api/v1/analyses/{id}", edge.Do(action.ReadAnalysisID, s.Analysis),
			edge.Policy{Scope: domain.AnalysesRead, Monthly: true, Replica: true, NoQuery: true},
		),
		edge.Post(
			"/api/v1/versions/{id}/approve", edge.Do(action.ReadApproval, s.Approve),
			edge.Policy{Scope: domain.ApprovalsWrite, Monthly: true, Body: edge.BodyRequired},
		),
		edge.Post("/api/v1/versions/{id}/certificates", edge.Do(action.ReadPublication, s.IssueCertificate), certify),
		edge.Get(
			"/api/v1/certificates/{id}/download", edge.Do(action.ReadCertificateID, s.Download),
			edge.Policy{Scope: domain.CertificatesRead, Monthly: true, NoQuery: true},
		),
		edge.Post(
			"/api/v1/certificates/{id}/revoke", edge.Do(action.ReadRevocation, s.RevokeCertificate),
			edge.Policy{Scope: domain.CertificatesWrite, Monthly: true, Body: edge.BodyRequired, TakesAway: true},
		),
		edge.Get(
			"/api/v1/audit-events", edge.Do(action.ReadAuditQuestion, s.AuditEvents),
			edge.Policy{Scope: domain.AuditRead, Monthly: true, Replica: true},
		),
		edge.Get(
			"/api/v1/metrics/detectors", edge.Do(edge.ReadNothing, s.DetectorMetrics),
			edge.Policy{Scope: domain.MetricsRead, Monthly: true, Replica: true, NoQuery: true},
		),
		edge.Post(
			"/api/v1/manifests/validate", edge.OfRequest(s.ValidateManifest),
			edge.Policy{Scope: domain.ArtifactsRead, Monthly: true, Body: edge.BodyManifest, NoQuery: true},
		),
	}
}

// account returns the endpoints that any API key may call.
func (s API) account() []edge.Endpoint {
	return []edge.Endpoint{
		edge.Get(
			"/api/v1/usage", edge.Do(edge.ReadNothing, s.AccountUsage),
			edge.Policy{Scope: edge.AnyScope, KeyLimit: "usage", NoQuery: true},
		),
		edge.Get(
			"/api/v1/me", edge.Do(edge.ReadNothing, s.Me), edge.Policy{Scope: edge.AnyScope, Monthly: true, NoQuery: true},
		),
	}
}

// organization returns the endpoints with which an organization administers itself. None consumes a monthly request: an
// owner must be able to revoke a leaked key when the month is used up.
func (s API) organization() []edge.Endpoint {
	const organization = "/api/v1/organization"
	write := edge.Policy{Scope: domain.OrganizationAdmin, Body: edge.BodyRequired}
	read := edge.Policy{Scope: domain.OrganizationAdmin, NoQuery: true}
	remove := edge.Policy{Scope: domain.OrganizationAdmin, NoQuery: true, TakesAway: true}
	return []edge.Endpoint{
		edge.Get(organization, edge.Do(edge.ReadNothing, s.Organization), edge.Policy{Scope: edge.AnyScope, NoQuery: true}),
		edge.Get(
			organization+"/keys", edge.Do(action.ReadKeysPage, s.ListKeys), edge.Policy{Scope: domain.OrganizationAdmin},
		),
		edge.Post(organization+"/keys", edge.Do(action.ReadNewKey, edge.Created(s.CreateKey)), write),
		edge.Get(organization+"/keys/{keyId}", edge.Do(action.ReadKeyID, s.Key), read),
		edge.Patch(organization+"/keys/{keyId}", edge.Do(action.ReadKeyChange, s.UpdateKey), write),
		edge.Delete(organization+"/keys/{keyId}", edge.Do(action.ReadKeyID, s.RevokeKey), remove),
		edge.Post(
			organization+"/keys/{keyId}/rotate", edge.Do(action.ReadKeyRotation, edge.Created(s.RotateKey)),
			edge.Policy{Scope: domain.OrganizationAdmin, Body: edge.BodyOptional},
		),
		edge.Get(
			organization+"/members", edge.Do(action.ReadMembersPage, s.ListMembers),
			edge.Policy{Scope: domain.OrganizationAdmin},
		),
		edge.Post(organization+"/members", edge.Do(action.ReadInvitation, edge.CreatedOnce(s.InviteMember)), write),
		edge.Patch(
			organization+"/members/{memberId}", edge.Do(action.ReadMemberChange, s.UpdateMember),
			edge.Policy{Scope: domain.OrganizationAdmin, Body: edge.BodyRequired, TakesAway: true},
		),
		edge.Delete(organization+"/members/{memberId}", edge.Do(action.ReadMemberID, s.EndMember), remove),
	}
}

// oauth returns the endpoints of OAuth, if a provider is configured.
func (s API) oauth() []edge.Endpoint {
	if s.OAuth == nil {
		return nil
	}
	return []edge.Endpoint{
		edge.Get(
			edge.ResourceMetadataRoute, s.resourceMetadata,
			edge.Policy{Caller: edge.Anyone, Bucket: edge.Pages, Answer: edge.AsFile, AnyOrigin: true},
		),
		edge.Get("/api/v1/oauth/links", edge.Do(action.ReadLinkQuestion, s.ListLinks), edge.Policy{Scope: edge.AnyScope}),
		edge.Post(
			"/api/v1/oauth/links", edge.Do(action.ReadOAuthScopes, edge.Created(s.StartLink)),
			edge.Policy{Scope: edge.AnyScope, Body: edge.BodyOptional},
		),
		edge.Post(
			"/api/v1/oauth/links/redeem", edge.OfRequest(s.RedeemLink),
			edge.Policy{Caller: edge.Anyone, Bucket: edge.Minute, Body: edge.BodyRequired},
		),
		edge.Delete(
			"/api/v1/oauth/links/{linkId}", edge.Do(action.ReadLinkID, s.WithdrawConsent),
			edge.Policy{Scope: edge.AnyScope, NoQuery: true, TakesAway: true},
		),
	}
}
