package handlers

import (
	"context"
	"encoding/json"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/mcp"
	"integrityledger/handlers/web"
	"integrityledger/schemas"
)

// object is a schema of the published contract.
func object(file, component string, parameters ...string) json.RawMessage {
	return must(schemas.Object(file, component, parameters...))
}

// certificateOnly is the contract's VerifyRequest without a hash.
const certificateOnly = `{"type":"object","additionalProperties":false,"required":["publicId"],"properties":{"publicId":{"type":"string","description":"Of a certificate."}}}`

// ordinaryMCP has read-oriented tools (specification, MCP endpoints).
func (s *server) ordinaryMCP() *mcpEndpoint {
	const contract = schemas.CertificationOpenAPIFile
	e := s.newEndpoint("integrity-ledger", web.Certificate, evidence.Spanish, []tool{
		{
			name: "verificar_documento", scope: domain.VerifyRead, effect: mcp.Reads, limits: true,
			input: object(contract, "VerifyRequest"), output: object(contract, "Verification"),
			read: called(readVerification, s.verifyHash),
		},
		{
			name: "verificar_certificado", scope: domain.VerifyRead, effect: mcp.Reads, limits: true,
			input: json.RawMessage(certificateOnly), output: object(contract, "PublicVerification"),
			read: func(o *strictjson.Object) toolCall {
				id := publicID(o.String("publicId", strictjson.Required))
				return func(ctx context.Context, _ *call) (any, error) { return s.verifyPublished(ctx, id, nil) }
			},
		},
		{
			name: "listar_documentos", scope: domain.ArtifactsRead, effect: mcp.Reads,
			input: object(contract, "", "pageLimit", "offset"), output: object(contract, "Artifacts"),
			read: func(o *strictjson.Object) toolCall {
				limit, offset := integer(o, "limit", 1, maxPageLimit, pageLimit), integer(o, "offset", 0, maxPageOffset, 0)
				return func(ctx context.Context, c *call) (any, error) { return s.artifactsOf(ctx, c, int(limit), int(offset)) }
			},
		},
		{
			name: "consultar_consumo", scope: anyScope, effect: mcp.Reads,
			input: object(contract, ""), output: object(contract, "AccountUsage"),
			read: func(*strictjson.Object) toolCall {
				return func(ctx context.Context, c *call) (any, error) { return s.monthOf(ctx, c) }
			},
		},
	})
	e.monthly = true
	return e
}

// integrityMCP has the tools of hash-only registration.
func (s *server) integrityMCP() *mcpEndpoint {
	const contract = schemas.OpenAPIFile
	return s.newEndpoint("integrity-ledger-integrity", web.Record, evidence.English, []tool{
		{
			name: "integrity_reserve", scope: domain.IntegrityWrite, granted: true, effect: mcp.Repeats,
			input: object(contract, "ReservationRequest"), output: object(contract, "Reservation"),
			read: called(domain.ReadVersionReference, s.reserve),
		},
		{
			name: "integrity_register", scope: domain.IntegrityWrite, granted: true, effect: mcp.Repeats, limits: true,
			input: object(contract, "Declaration"), output: object(contract, "Registration"),
			read: called(domain.ReadDeclaration, s.register),
		},
		{
			name: "integrity_lookup", scope: domain.IntegrityRead, granted: true, effect: mcp.Reads,
			input: object(contract, "ReservationRequest"), output: object(contract, "Record"),
			read: called(domain.ReadVersionReference, s.lookUp),
		},
		{
			name: "integrity_changes", scope: domain.IntegrityRead, granted: true, effect: mcp.Reads,
			input: object(contract, "", "companyReference", "sequence", "limit"), output: object(contract, "Feed"),
			read: func(o *strictjson.Object) toolCall {
				company := domain.ReadReference(o, "companyReference")
				after, limit := integer(o, "after", 0, strictjson.MaxInteger, 0), integer(o, "limit", 1, maxFeedLimit, feedLimit)
				return func(ctx context.Context, c *call) (any, error) {
					return s.changesAfter(ctx, c.access, company, after, int(limit))
				}
			},
		},
		{
			name: "integrity_export", scope: domain.IntegrityRead, granted: true, effect: mcp.Reads, limits: true,
			input: object(contract, "", "publicId", "at"), output: object(contract, "Evidence"),
			read: func(o *strictjson.Object) toolCall {
				id, at := publicID(o.String("publicId", strictjson.Required)), readMoment(o)
				return func(ctx context.Context, c *call) (any, error) { return s.export(ctx, c, id, at) }
			},
		},
		{
			name: "integrity_revoke", scope: domain.IntegrityRevoke, granted: true, effect: mcp.Destroys,
			input: object(contract, "RevokeRequest", "publicId"), output: object(contract, "RevokedRecord"),
			read: func(o *strictjson.Object) toolCall {
				id, reason := publicID(o.String("publicId", strictjson.Required)), readReason(o)
				return func(ctx context.Context, c *call) (any, error) { return s.revokeRecord(ctx, c, id, reason) }
			},
		},
		{
			name: "integrity_verify", scope: domain.IntegrityRead, effect: mcp.Reads, limits: true,
			input: object(contract, "", "publicId", "sha256"), output: object(contract, "Comparison"),
			read: func(o *strictjson.Object) toolCall {
				id := publicID(o.String("publicId", strictjson.Required))
				var hash *[32]byte
				if sum := readSHA256(o, strictjson.Optional); o.Has("sha256") {
					hash = &sum
				}
				return func(ctx context.Context, _ *call) (any, error) { return s.comparison(ctx, id, hash) }
			},
		},
	})
}

// integer reads an optional member.
func integer(o *strictjson.Object, name string, least, most, absent int64) int64 {
	if !o.Has(name) {
		return absent
	}
	return o.Int(name, least, most, strictjson.Optional)
}
