package handlers

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func (s *server) viewCertificate(c query.Certificate) wire.Certificate {
	return wire.Certificate{
		PublicID: c.PublicID.String(), VersionID: c.VersionID.String(), ArtifactID: c.ArtifactID.String(), Status: c.Status(),
		IssuedAt: evidence.FormatTime(c.IssuedAt), PublicFields: c.PublicFields, RevokedAt: timeOrNull(c.RevokedAt), ReplacedAt: timeOrNull(c.ReplacedAt),
		VerificationURL: s.BaseURL + web.Certificate.Path(c.PublicID.String()),
		DownloadURL:     s.BaseURL + "/api/v1/certificates/" + c.PublicID.String() + "/download",
		ReplacedBy:      viewOrNull(c.ReplacedBy, domain.PublicID.String),
	}
}

func (s *server) issueCertificate(r *http.Request) (any, error) {
	return taken(r, readPublication, s.certifyVersion)
}

// readPublication reads the fields that a certificate makes public.
func readPublication(o *strictjson.Object) (fields []string) {
	domain.ReadConsent(o, "publicationAuthorized")
	return readNames(o, "publicFields", []string{domain.PublicTitle, domain.PublicOrganizationName}, strictjson.CodeFormat, "must be title or organizationName")
}

func (s *server) certifyVersion(r *http.Request, fields []string) (any, error) {
	title, organization := slices.Contains(fields, domain.PublicTitle), slices.Contains(fields, domain.PublicOrganizationName)
	return s.once(r, []bool{title, organization}, func() (domain.Command, func() response, error) {
		id, access := versionID(r), callOf(r).access
		version, err := s.Store.ArtifactVersion(r.Context(), access, id)
		if err != nil {
			return nil, nil, err
		}
		published, err := s.published(r, version, title, organization)
		if err != nil {
			return nil, nil, err
		}
		signer, err := s.signer()
		if err != nil {
			return nil, nil, err
		}
		sum, ok := domain.ParseSHA256(version.SHA256)
		if !ok {
			return nil, nil, fmt.Errorf("version %s has no SHA-256", id)
		}
		registrar := domain.Registrar{Issuer: s.Installation.Issuer, Secret: s.Installation.Secret, Signer: signer}
		command := registrar.Certify(origin(r), access.Member, id, sum, version.SizeBytes, published, s.Now())
		return command, func() response {
			issued := command.Outcome
			return response{status: http.StatusCreated, data: wire.IssuedCertificate{
				Certificate: s.viewCertificate(query.Certificate{
					PublicID: issued.Body.PublicID, VersionID: issued.Body.VersionID, ArtifactID: issued.Body.ArtifactID,
					PublicFields: issued.Body.PublicFields, IssuedAt: issued.Body.IssuedAt,
				}),
				Version: viewState(issued.Version),
			}}
		}, nil
	})
}

// published finds the words that are to stand in a certificate. What was erased cannot be published.
func (s *server) published(r *http.Request, version query.ArtifactVersion, title, organization bool) (domain.Published, error) {
	var p domain.Published
	if title {
		if p.Title = version.Title; p.Title == nil {
			return p, domain.ErrErasedTitle
		}
	}
	if organization {
		o, err := s.Store.Organization(r.Context(), callOf(r).access.Organization)
		if err != nil {
			return p, err
		}
		if p.OrganizationName = &o.Name; o.Name == "" {
			return p, domain.ErrErasedName
		}
	}
	return p, nil
}

func certificateID(r *http.Request) domain.PublicID { return publicID(variable(r, "id")) }

// revokeCertificate revokes a certificate. The reason is seen in the audit history only.
func (s *server) revokeCertificate(r *http.Request) (any, error) {
	return taken(r, readRevocation, s.endCertificate)
}

func readRevocation(o *strictjson.Object) string {
	return domain.ReadStatement(o, "reason", domain.MaxReason)
}

func (s *server) endCertificate(r *http.Request, reason string) (any, error) {
	return s.once(r, reason, func() (domain.Command, func() response, error) {
		id := certificateID(r)
		known, err := s.Store.Certificate(r.Context(), callOf(r).access, id)
		if err != nil {
			return nil, nil, err
		}
		command := &domain.RevokeCertificate{Origin: origin(r), PublicID: id, Reason: reason}
		return command, func() response {
			now := known.Certificate
			now.RevokedAt, now.ReplacedBy = command.Outcome.RevokedAt, command.Outcome.ReplacedBy
			return response{data: wire.RevokedCertificate{Certificate: s.viewCertificate(now), Replayed: command.Replayed}}
		}, nil
	})
}

// download answers the signed certificate, raw.
func (s *server) download(r *http.Request) (any, error) {
	stored, err := s.Store.Certificate(r.Context(), callOf(r).access, certificateID(r))
	if err != nil {
		return nil, err
	}
	if stored.Payload == nil {
		return nil, domain.Refuse(domain.InvalidState, "The signed bytes of this certificate were erased with the title or name in them.")
	}
	trust := s.Keys().Trusted
	key, _ := trust.Lookup(stored.KeyID)
	if key.KeyID == "" {
		return nil, domain.Unavailable("The key that signed this certificate is not among the service's trusted keys at the moment; send the request again later.")
	}
	if _, finding := verifyCertificate(trust, stored); finding == evidence.Invalid {
		return nil, fmt.Errorf("certificate: %w", errTampered)
	}
	raw, err := encode(evidence.NewSigned(stored.Payload, stored.Signature, key.PublicKey))
	return response{raw: raw, header: http.Header{"Content-Disposition": {`attachment; filename="certificate-` + stored.PublicID.String() + `.json"`}}}, err
}

// verifyCertificate judges what the ledger holds of a certificate: signature, trust, and binding to its public id. The
// payload may be used only if the finding is Valid. Bytes of a revoked key are untrusted, unless they are another
// certificate's.
func verifyCertificate(trust *evidence.TrustedKeys, c query.SignedCertificate) (evidence.CertificatePayload, evidence.Finding) {
	payload, finding := evidence.VerifyCertificate(trust, c.KeyID, c.Payload, c.Signature)
	switch finding {
	case evidence.Valid:
		if payload.PublicID == c.PublicID.String() {
			return payload, finding
		}
		return evidence.CertificatePayload{}, evidence.Invalid
	case evidence.Untrusted:
		if payload, err := evidence.ParseCertificatePayload(c.Payload); err != nil || payload.PublicID != c.PublicID.String() {
			finding = evidence.Invalid
		}
	}
	return evidence.CertificatePayload{}, finding
}

// certify keeps hash, signature and validity apart: verified needs all three. Nothing is compared where sum is nil. The
// hash compared is the one inside the verified payload.
func (s *server) certify(stored query.SignedCertificate, sum *[32]byte) (wire.Verification, evidence.CertificatePayload) {
	payload, finding := verifyCertificate(s.Keys().Trusted, stored)
	v := wire.Verification{
		PublicID: stored.PublicID.String(), SignatureValid: finding == evidence.Valid, CertificateStatus: stored.Status(),
		CertificateCurrent: stored.Status() == domain.CertificateValid, CheckedAt: evidence.FormatTime(s.Now()),
	}
	if v.SignatureValid && sum != nil {
		v.HashMatches = new(hex.EncodeToString(sum[:]) == payload.SHA256)
	}
	switch {
	case !v.SignatureValid:
		v.Reason = wire.ReasonSignature
	case sum == nil:
		v.Reason = wire.ReasonNoFile
	case !*v.HashMatches:
		v.Reason = wire.ReasonMismatch
	case v.CertificateStatus == domain.CertificateRevokedStatus:
		v.Reason = wire.ReasonRevoked
	case v.CertificateStatus == domain.CertificateReplacedStatus:
		v.Reason = wire.ReasonReplaced
	default:
		v.Reason, v.Verified = wire.ReasonMatch, true
	}
	return v, payload
}

// verification asks to compare a hash with any organization's certificate.
type verification struct {
	publicID domain.PublicID
	sum      *[32]byte
}

func readVerification(o *strictjson.Object) verification {
	return verification{publicID(o.String("publicId", strictjson.Required)), readSHA256(o, strictjson.Required)}
}

// readSHA256 reads a hash; nil if it is absent or wrong.
func readSHA256(o *strictjson.Object, presence strictjson.Presence) *[32]byte {
	text := o.String("sha256", presence)
	if !o.OK("sha256") {
		return nil
	}
	sum, ok := domain.ParseSHA256(text)
	if !ok {
		o.Problem("sha256", strictjson.CodeFormat, domain.SHA256Rule)
		return nil
	}
	return &sum
}

// optionalHash reads the hash of a comparison, which may be asked for without one.
func optionalHash(o *strictjson.Object) *[32]byte { return readSHA256(o, strictjson.Optional) }

func (s *server) verifyHash(ctx context.Context, _ *call, v verification) (any, error) {
	stored, err := s.Store.AnyCertificate(ctx, v.publicID)
	if err != nil {
		return nil, err
	}
	view, _ := s.certify(stored, v.sum)
	return view, nil
}

// verifyPublicly answers anyone who has the public id, with or without a hash to compare.
func (s *server) verifyPublicly(r *http.Request) (any, error) {
	hash, err := queried(r, optionalHash)
	if err != nil {
		return nil, err
	}
	return s.verifyPublished(r.Context(), certificateID(r), hash)
}

// verifyPublished judges the certificate with a public id and shows what was authorized for publication. sum is as for
// certify.
func (s *server) verifyPublished(ctx context.Context, id domain.PublicID, sum *[32]byte) (wire.PublicVerification, error) {
	stored, err := s.Store.AnyCertificate(ctx, id)
	if err != nil {
		return wire.PublicVerification{}, err
	}
	view, payload := s.certify(stored, sum)
	answer := wire.PublicVerification{Verification: view, LimitsURL: s.BaseURL + "/limits"}
	if view.SignatureValid {
		answer.Certificate = &wire.PublishedCertificate{
			Issuer: payload.Issuer, IssuedAt: payload.IssuedAt, KeyID: stored.KeyID, Title: payload.Title, OrganizationName: payload.OrganizationName,
		}
	}
	return answer, nil
}
