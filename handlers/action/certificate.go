package action

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

func (s *Service) viewCertificate(c query.Certificate) wire.Certificate {
	return wire.Certificate{
		PublicID: c.PublicID.String(), VersionID: c.VersionID.String(), ArtifactID: c.ArtifactID.String(), Status: c.Status(),
		IssuedAt: evidence.FormatTime(c.IssuedAt), PublicFields: c.PublicFields, RevokedAt: wire.TimeOrNull(c.RevokedAt),
		ReplacedAt:      wire.TimeOrNull(c.ReplacedAt),
		VerificationURL: s.BaseURL + web.Certificate.Path(c.PublicID.String()),
		DownloadURL:     s.BaseURL + "/api/v1/certificates/" + c.PublicID.String() + "/download",
		ReplacedBy:      wire.ViewOrNull(c.ReplacedBy, domain.PublicID.String),
	}
}

// Publication asks to certify a version and names the texts that the certificate makes public.
type Publication struct {
	version             domain.ArtifactVersionID
	title, organization bool
}

// ReadPublication reads which texts of a version the certificate makes public: none if publicFields is absent. It
// requires publicationAuthorized.
func ReadPublication(o *strictjson.Object) Publication {
	domain.ReadConsent(o, "publicationAuthorized")
	fields := edge.ReadNames(o, "publicFields", []string{domain.PublicTitle, domain.PublicOrganizationName},
		strictjson.CodeFormat, "must be title or organizationName")
	return Publication{
		version: readVersionID(o), title: slices.Contains(fields, domain.PublicTitle),
		organization: slices.Contains(fields, domain.PublicOrganizationName),
	}
}

// IssueCertificate signs and publishes a certificate of an approved version. It replaces the certificate of an earlier
// version. It refuses to publish texts that were erased.
func (s *Certificates) IssueCertificate(
	ctx context.Context, c *edge.Call, asked Publication,
) (edge.Response, error) {
	return s.once(ctx, c, []bool{asked.title, asked.organization}, func() (domain.Command, func() edge.Response, error) {
		version, err := s.Store.ArtifactVersion(ctx, c.Access, asked.version)
		if err != nil {
			return nil, nil, err
		}
		published, err := s.published(ctx, c, version, asked)
		if err != nil {
			return nil, nil, err
		}
		signer, err := s.signer()
		if err != nil {
			return nil, nil, err
		}
		sum, ok := domain.ParseSHA256(version.SHA256)
		if !ok {
			return nil, nil, fmt.Errorf("version %s has no SHA-256", asked.version)
		}
		registrar := domain.Registrar{Issuer: s.Installation.Issuer, Secret: s.Installation.Secret, Signer: signer}
		command, err := registrar.Certify(
			c.Origin(), c.Access.Member, asked.version, sum, version.SizeBytes, published, s.Now(),
		)
		if err != nil {
			return nil, nil, err
		}
		return command, func() edge.Response {
			issued := command.Outcome
			return edge.Response{Status: http.StatusCreated, Data: wire.IssuedCertificate{
				Certificate: s.viewCertificate(query.Certificate{
					PublicID: issued.Body.PublicID, VersionID: issued.Body.VersionID, ArtifactID: issued.Body.ArtifactID,
					PublicFields: issued.Body.PublicFields, IssuedAt: issued.Body.IssuedAt,
				}),
				Version: viewState(issued.Version),
			}}
		}, nil
	})
}

// published finds the texts to publish in a certificate. An erased text cannot be published.
func (s *Certificates) published(
	ctx context.Context, c *edge.Call, version query.ArtifactVersion, asked Publication,
) (p domain.Published, err error) {
	if asked.title {
		if p.Title = version.Title; p.Title == nil {
			return p, domain.ErrErasedTitle
		}
	}
	if asked.organization {
		o, err := s.Store.Organization(ctx, c.Access.Organization)
		if err != nil {
			return p, err
		}
		if p.OrganizationName = &o.Name; o.Name == "" {
			return p, domain.ErrErasedName
		}
	}
	return p, nil
}

// ReadCertificateID reads the certificate in the path.
func ReadCertificateID(o *strictjson.Object) domain.PublicID {
	return edge.PublicID(o.String("id", strictjson.Required))
}

// ReadRevocation reads the certificate in the path and the required reason.
func ReadRevocation(o *strictjson.Object) domain.RevokeCertificate {
	return domain.RevokeCertificate{
		PublicID: ReadCertificateID(o), Reason: domain.ReadStatement(o, "reason", domain.MaxReason),
	}
}

// RevokeCertificate revokes a certificate. Only the audit history shows the reason.
func (s *Certificates) RevokeCertificate(
	ctx context.Context, c *edge.Call, revoke domain.RevokeCertificate,
) (edge.Response, error) {
	return s.once(ctx, c, revoke.Reason, func() (domain.Command, func() edge.Response, error) {
		known, err := s.Store.Certificate(ctx, c.Access, revoke.PublicID)
		if err != nil {
			return nil, nil, err
		}
		revoke.Origin = c.Origin()
		return &revoke, func() edge.Response {
			now := known.Certificate
			now.RevokedAt, now.ReplacedBy = revoke.Outcome.RevokedAt, revoke.Outcome.ReplacedBy
			return edge.Response{Data: wire.RevokedCertificate{Certificate: s.viewCertificate(now), Replayed: revoke.Replayed}}
		}, nil
	})
}

// Download answers the signed certificate as raw bytes.
func (s *Certificates) Download(ctx context.Context, c *edge.Call, id domain.PublicID) (edge.Response, error) {
	stored, err := s.Store.Certificate(ctx, c.Access, id)
	if err != nil {
		return edge.Response{}, err
	}
	if stored.Payload == nil {
		return edge.Response{}, domain.Refuse(
			domain.InvalidState, "The signed bytes of this certificate were erased with the title or name in them.",
		)
	}
	trust := s.Keys().Trusted
	key, _ := trust.Lookup(stored.KeyID)
	if key.KeyID == "" {
		return edge.Response{}, domain.Unavailable(
			"The key that signed this certificate is not among the service's trusted keys at the moment; send the request " +
				"again later.",
		)
	}
	if _, finding := verifyCertificate(trust, stored); finding == evidence.Invalid {
		return edge.Response{}, fmt.Errorf("certificate: %w", errTampered)
	}
	raw, err := edge.Encode(evidence.NewSigned(stored.Payload, stored.Signature, key.PublicKey))
	return edge.Response{
		Raw: raw,
		Header: http.Header{
			"Content-Disposition": {`attachment; filename="certificate-` + stored.PublicID.String() + `.json"`},
		},
	}, err
}

// verifyCertificate verifies a stored certificate: signature, trust, and binding to its public id. The payload may be
// used only if the finding is Valid. A certificate of a revoked key is Untrusted, unless it is bound to another public
// id: then it is Invalid.
func verifyCertificate(
	trust *evidence.TrustedKeys, c query.SignedCertificate,
) (evidence.CertificatePayload, evidence.Finding) {
	payload, finding := evidence.VerifyCertificate(trust, c.KeyID, c.Payload, c.Signature)
	switch finding {
	case evidence.Valid:
		if payload.PublicID == c.PublicID.String() {
			return payload, finding
		}
		return evidence.CertificatePayload{}, evidence.Invalid
	case evidence.Untrusted:
		if payload, err := evidence.ParseCertificatePayload(c.Payload); err != nil ||
			payload.PublicID != c.PublicID.String() {
			finding = evidence.Invalid
		}
	}
	return evidence.CertificatePayload{}, finding
}

// Certify reports hash, signature and validity separately; Verified requires all three. If sum is nil, no hash is
// compared. The compared hash is the one inside the verified payload.
func (s *Certificates) Certify(
	stored query.SignedCertificate, sum *[32]byte,
) (wire.Verification, evidence.CertificatePayload) {
	payload, finding := verifyCertificate(s.Keys().Trusted, stored)
	v := wire.Verification{
		PublicID: stored.PublicID.String(), SignatureValid: finding == evidence.Valid, CertificateStatus: stored.Status(),
		CertificateCurrent: stored.Status() == domain.CertificateValid, CheckedAt: evidence.FormatTime(s.Now()),
	}
	if v.SignatureValid && sum != nil {
		v.HashMatches = new(*sum == payload.SHA256)
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

// Verification asks about the certificate of any organization, and compares a hash with it if there is one.
type Verification struct {
	publicID domain.PublicID
	sum      *[32]byte
}

// ReadVerification reads a Verification with a hash from a body.
func ReadVerification(o *strictjson.Object) Verification {
	return Verification{edge.ReadPublicID(o), edge.ReadSHA256(o, strictjson.Required)}
}

// ReadPublicVerification reads a Verification from path and query; the hash is optional.
func ReadPublicVerification(o *strictjson.Object) Verification {
	return Verification{ReadCertificateID(o), edge.OptionalHash(o)}
}

// ReadHashless reads a Verification without a hash.
func ReadHashless(o *strictjson.Object) Verification {
	return Verification{publicID: edge.ReadPublicID(o)}
}

// VerifyHash compares a hash with a certificate of any organization.
func (s *Certificates) VerifyHash(ctx context.Context, _ *edge.Call, v Verification) (wire.Verification, error) {
	stored, err := s.Store.AnyCertificate(ctx, v.publicID)
	if err != nil {
		return wire.Verification{}, err
	}
	view, _ := s.Certify(stored, v.sum)
	return view, nil
}

// VerifyPublished answers any caller that knows the public id of a certificate, and shows the texts whose publication
// was authorized.
func (s *Certificates) VerifyPublished(
	ctx context.Context, _ *edge.Call, v Verification,
) (wire.PublicVerification, error) {
	stored, err := s.Store.AnyCertificate(ctx, v.publicID)
	if err != nil {
		return wire.PublicVerification{}, err
	}
	view, payload := s.Certify(stored, v.sum)
	answer := wire.PublicVerification{Verification: view, LimitsURL: s.BaseURL + "/limits"}
	if view.SignatureValid {
		answer.Certificate = &wire.PublishedCertificate{
			Issuer: payload.Issuer, IssuedAt: evidence.FormatTime(payload.IssuedAt), KeyID: stored.KeyID, Title: payload.Title,
			OrganizationName: payload.OrganizationName,
		}
	}
	return answer, nil
}
