package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/handlers/wire"
)

// Register declares the hash of a version's final bytes. A replay is a success with Replayed set. After an error the
// outcome may be [Unknown].
func (c *Client) Register(ctx context.Context, d wire.Declaration) (wire.Registration, error) {
	return c.register(ctx, d)
}

// RegisterSaved sends a saved declaration byte for byte, as a replay must.
func (c *Client) RegisterSaved(ctx context.Context, declaration []byte) (wire.Registration, error) {
	return c.register(ctx, declaration)
}

func (c *Client) register(ctx context.Context, declaration any) (wire.Registration, error) {
	answer, err := post[wire.Registration](ctx, c, "/api/v1/integrity/records", declaration)
	return about(answer, err, answer.PublicID != "")
}

// BatchResult is the outcome of one declaration. Exactly one of Registration and Err is set.
type BatchResult struct {
	Registration *wire.Registration
	Err          *Error
}

// RegisterBatch declares 1 to 500 versions in one request. Each is decided as if it were sent alone. The results are in
// the order of the declarations. An error means that the request failed as a whole; its outcome may be [Unknown].
func (c *Client) RegisterBatch(ctx context.Context, declarations []wire.Declaration) ([]BatchResult, error) {
	return c.registerBatch(ctx, wire.BatchRequest{Declarations: declarations}, len(declarations))
}

// RegisterBatchSaved is RegisterBatch with saved declarations, each sent byte for byte, as a replay must.
func (c *Client) RegisterBatchSaved(ctx context.Context, declarations [][]byte) ([]BatchResult, error) {
	body := slices.Concat([]byte(`{"declarations":[`), bytes.Join(declarations, []byte(",")), []byte("]}"))
	return c.registerBatch(ctx, body, len(declarations))
}

func (c *Client) registerBatch(ctx context.Context, batch any, size int) ([]BatchResult, error) {
	answer, err := post[wire.Results[wire.Registration]](ctx, c, "/api/v1/integrity/records/batch", batch)
	if err != nil {
		return nil, err
	}
	data, errs, err := results(answer.Results, size)
	if err != nil {
		return nil, err
	}
	all := make([]BatchResult, size)
	for i := range all {
		all[i] = BatchResult{data[i], errs[i]}
	}
	return all, nil
}

// Reserve assigns a link to a version before its bytes are final. Reserving again renews the reservation. A reservation
// is not evidence.
func (c *Client) Reserve(ctx context.Context, v wire.VersionReference) (wire.Reservation, error) {
	answer, err := post[wire.Reservation](ctx, c, reservationsPath, v)
	return about(answer, err, answer.PublicID != "" && answer.VerificationURL != "")
}

const reservationsPath = "/api/v1/integrity/reservations"

// Reservations reads a page of a company's versions that were reserved and are not registered. The first to expire
// comes first. An empty status means any. A page may be empty although more follow. after is the NextCursor of the
// previous page, or empty.
func (c *Client) Reservations(
	ctx context.Context, company string, status domain.ReservationStatus, after string,
) (wire.Reservations, error) {
	return get[wire.Reservations](
		ctx, c, reservationsPath, page(after, "companyReference", company, "status", string(status)),
	)
}

// ReleaseReservation cancels a pending reservation and frees its place. Its link stays, and reserving again renews it.
func (c *Client) ReleaseReservation(ctx context.Context, publicID string) (wire.ReleasedReservation, error) {
	answer, err := read[wire.ReleasedReservation](
		ctx, c, ask{method: http.MethodDelete, path: reservationsPath + "/" + publicID, wrong: checkPublicID(publicID)},
	)
	return about(answer, err, answer.PublicID == publicID)
}

// Lookup finds the record of a version. It fails with RECORD_NOT_FOUND if the version is not registered.
func (c *Client) Lookup(ctx context.Context, v wire.VersionReference) (wire.Record, error) {
	answer, err := get[wire.Record](ctx, c, "/api/v1/integrity/lookup", url.Values{
		"companyReference": {v.CompanyReference}, "source": {v.Source},
		"documentReference": {v.DocumentReference}, "version": {strconv.Itoa(int(v.Version))},
	})
	return about(answer, err, answer.DocumentReference == v.DocumentReference && answer.Version == v.Version)
}

// Record finds a record by its publicId. For a former publicId, whose record was lost and registered again, the answer
// is the record that is kept, with its own publicId; the public comparison must confirm that it is.
func (c *Client) Record(ctx context.Context, publicID string) (wire.Record, error) {
	answer, err := read[wire.Record](ctx, c, askRecord(http.MethodGet, publicID, ""))
	if err == nil && answer.PublicID != publicID {
		compared, err := c.Compare(ctx, publicID, "")
		return about(answer, err, compared.Alias != nil && compared.Alias.PublicID == answer.PublicID)
	}
	return about(answer, err, true)
}

// RecordsQuery says which records to list; empty members do not restrict the list. SHA256 must not be combined with
// other members.
type RecordsQuery struct {
	SHA256                                      string // 64 hexadecimal characters
	CompanyReference, Source, DocumentReference string // without SHA256 the company is required
	Status                                      domain.Status
	ReceivedFrom, ReceivedTo                    string // RFC 3339; from inclusive, to exclusive
}

// Records reads a page of the records with a hash, or of a company, in companies granted to the key, newest first. A
// page may be empty although more follow. after is the NextCursor of the previous page, or empty.
func (c *Client) Records(ctx context.Context, of RecordsQuery, after string) (wire.Records, error) {
	return get[wire.Records](ctx, c, "/api/v1/integrity/records", page(after,
		"sha256", of.SHA256, "companyReference", of.CompanyReference, "source", of.Source, "documentReference",
		of.DocumentReference,
		"status", string(of.Status), "receivedFrom", of.ReceivedFrom, "receivedTo", of.ReceivedTo))
}

// EvidenceOption changes a request for evidence.
type EvidenceOption func(query url.Values)

// AsOf asks for the signed state as of an earlier moment instead of an observation: it shows history, not the present
// state. at is an RFC 3339 time at least a minute ago, or the sequence of an event in plain digits.
func AsOf(at string) EvidenceOption { return func(query url.Values) { query.Set("at", at) } }

// WithTimestamps asks for the tokens of timestamp authorities (RFC 3161), which show that the record existed before a
// time. The evidence has no tokens until an authority has stamped a checkpoint of the log that includes the record.
func WithTimestamps() EvidenceOption {
	return func(query url.Values) { query.Set("timestamps", "true") }
}

// Evidence returns the raw signed export of a record, with references and a dated observation of its state. Keep the
// bytes unchanged.
func (c *Client) Evidence(ctx context.Context, publicID string, options ...EvidenceOption) ([]byte, error) {
	a := askRecord(http.MethodGet, publicID, "/evidence")
	a.query = url.Values{}
	for _, option := range options {
		option(a.query)
	}
	return c.signed(ctx, a)
}

// EvidenceResult is the evidence of one record, as [Client.Evidence] returns it, or why it is missing. Exactly one of
// Evidence and Err is set.
type EvidenceResult struct {
	Evidence []byte
	Err      *Error // INCLUSION_PENDING: ask again after its RetryAfter
}

// EvidenceOfMany returns the evidence of 1 to 100 records in one request, in the order of their public ids, each of
// which must appear once. Evidence whose proof of inclusion in the transparency log may still come is refused with
// INCLUSION_PENDING; the service waits for the proofs as long as q says. An error means that the request failed as a
// whole.
func (c *Client) EvidenceOfMany(ctx context.Context, q wire.EvidenceRequest) ([]EvidenceResult, error) {
	answer, err := post[wire.Results[rawEvidence]](ctx, c, "/api/v1/integrity/records/evidence", q)
	if err != nil {
		return nil, err
	}
	data, errs, err := results(answer.Results, len(q.PublicIDs))
	if err != nil {
		return nil, err
	}
	all := make([]EvidenceResult, len(data))
	for i, evidence := range data {
		all[i].Err = errs[i]
		if evidence != nil {
			if all[i].Evidence, err = c.checkSigned(*evidence); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// rawEvidence is evidence with its bytes.
type rawEvidence []byte

// UnmarshalJSON implements json.Unmarshaler.
func (e *rawEvidence) UnmarshalJSON(text []byte) error {
	*e = bytes.Clone(text)
	return nil
}

// AppendJSON implements wire.Appender.
func (e rawEvidence) AppendJSON(dst []byte) []byte { return append(dst, e...) }

// results returns the data and the refusals of an answer to size items.
func results[Data wire.Appender](list []wire.Result[Data], size int) (data []*Data, errs []*Error, err error) {
	if len(list) != size {
		return nil, nil, say.Errorf("%d results for %d items: %w", len(list), size, errOther)
	}
	data, errs = make([]*Data, size), make([]*Error, size)
	for i, r := range list {
		switch {
		case r.Status == 0 || r.Error == nil && r.Data == nil:
			return nil, nil, say.Errorf("result %d: %w", i, errOther)
		case r.Error != nil:
			r.Error.Status = r.Status
			errs[i] = newError(r.Error)
		default:
			data[i] = r.Data
		}
	}
	return data, errs, nil
}

// signed returns the raw bytes of an answer, after checking that they look like signed evidence.
func (c *Client) signed(ctx context.Context, a ask) ([]byte, error) {
	body, err := c.do(ctx, a)
	if err != nil {
		return nil, err
	}
	return c.checkSigned(body)
}

func (c *Client) checkSigned(body []byte) ([]byte, error) {
	var envelope struct{ Payload string }
	if err := json.Unmarshal(body, &envelope); err != nil || !utf8.Valid(body) || envelope.Payload == "" {
		return nil, say.Errorf(
			"the answer of %s must be JSON with a member payload; is this the address of the service?", c.base,
		)
	}
	return body, nil
}

// TlogProof returns the transparency log proof of a record (C2SP tlog-proof) with its references, for a file with
// evidence.ProofExtension. Keep the bytes unchanged. If the published tree lacks the record, the service waits for it
// up to wait, in whole seconds and at most 25, and then refuses with INCLUSION_PENDING.
func (c *Client) TlogProof(ctx context.Context, publicID string, wait time.Duration) ([]byte, error) {
	a := askRecord(http.MethodGet, publicID, "/tlog-proof")
	a.query = url.Values{"wait": {strconv.Itoa(int(wait / time.Second))}}
	return c.proof(ctx, a)
}

// PublicTlogProof returns the transparency log proof of a record without its references. The request carries no key.
func (c *Client) PublicTlogProof(ctx context.Context, publicID string) ([]byte, error) {
	return c.proof(ctx, ask{
		method: http.MethodGet, path: "/api/public/integrity/" + publicID + "/tlog-proof", public: true,
		wrong: checkPublicID(publicID),
	})
}

// proof returns the bytes of an answer, after checking that they can be read as a proof.
func (c *Client) proof(ctx context.Context, a ask) ([]byte, error) {
	a.raw = true
	body, err := c.do(ctx, a)
	if err == nil {
		_, err = evidence.ParseProof(body)
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

// Report returns the evidence report of a record, a PDF for people with the evidence attached. Its printed text is no
// evidence; the attached files are. An empty language means the client's.
func (c *Client) Report(ctx context.Context, publicID string, language evidence.Language) ([]byte, error) {
	a := askRecord(http.MethodGet, publicID, "/report")
	return c.report(ctx, a, language)
}

// PublicReport returns the public evidence report of a record, which has no references. The request carries no key.
func (c *Client) PublicReport(ctx context.Context, publicID string, language evidence.Language) ([]byte, error) {
	return c.report(ctx, ask{
		method: http.MethodGet, path: "/api/public/integrity/" + publicID + "/report", public: true,
		wrong: checkPublicID(publicID),
	}, language)
}

func (c *Client) report(ctx context.Context, a ask, language evidence.Language) ([]byte, error) {
	if a.raw = true; language != "" {
		a.query = url.Values{"lang": {string(language)}}
	}
	body, err := c.do(ctx, a)
	if err == nil && !evidence.IsReport(body) {
		err = say.Errorf("the answer of %s must be a PDF; is this the address of the service?", c.base)
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

// Revoke revokes a record for good; the key needs integrity:revoke. The reason, at most 500 characters, may be empty.
// Only the organization can see it.
func (c *Client) Revoke(ctx context.Context, publicID, reason string) (wire.Revocation, error) {
	a := askRecord(http.MethodPost, publicID, "/revoke")
	a.document = wire.RevokeRequest{Reason: reason}
	answer, err := read[wire.Revocation](ctx, c, a)
	return about(answer, err, answer.PublicID == publicID)
}

func askRecord(method, publicID, after string) ask {
	return ask{method: method, path: "/api/v1/integrity/records/" + publicID + after, wrong: checkPublicID(publicID)}
}

func checkPublicID(text string) error {
	if _, ok := domain.ParsePublicID(text); !ok {
		return say.Errorf("publicId must be 26 characters a-z and 2-7")
	}
	return nil
}

// Compare compares a hash with a record in a public request without the key. Every result of the specification is an
// answer, including RecordNotFound. An error means that nothing could be compared, which is not a mismatch. Without a
// hash the best result is FileNotCompared. Accept a file only if Verified is true.
func (c *Client) Compare(ctx context.Context, publicID, sha256 string) (wire.Comparison, error) {
	a := ask{
		method: http.MethodGet, path: "/api/public/integrity/" + publicID, public: true, wrong: checkPublicID(publicID),
	}
	if sha256 != "" {
		a.query = url.Values{"sha256": {sha256}}
	}
	answer, err := read[wire.Comparison](ctx, c, a)
	var refused *Error
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound && refused.Code == domain.RecordNotFound:
		return wire.Comparison{PublicID: publicID, Result: wire.RecordNotFound}, nil
	case err != nil:
		return wire.Comparison{}, err
	case answer.PublicID != publicID:
		return wire.Comparison{}, errOther
	case !slices.Contains([]wire.ComparisonResult{
		wire.MatchCurrent, wire.MatchHistorical, wire.HashMismatch, wire.RecordRevoked, wire.FileNotCompared,
		wire.SignatureInvalid, wire.RegistrationPending,
	}, answer.Result):
		return wire.Comparison{}, say.Errorf("the result %q is not known to this program", answer.Result)
	}
	answer.Verified = answer.Verified && answer.Result == wire.MatchCurrent
	return answer, nil
}

// VerifyHash compares a hash with a certificate of any organization; the key needs verify:read. Accept a file only if
// Verified is true. It consumes a monthly request.
func (c *Client) VerifyHash(ctx context.Context, publicID, sha256 string) (wire.Verification, error) {
	answer, err := read[wire.Verification](ctx, c, ask{
		method: http.MethodPost, path: "/api/v1/verify",
		document: map[string]string{"publicId": publicID, "sha256": sha256}, wrong: checkPublicID(publicID),
	})
	return about(answer, err, answer.PublicID == publicID)
}

// Receipt returns the public receipt of a record. The request carries no key. Keep the bytes unchanged.
func (c *Client) Receipt(ctx context.Context, publicID string) ([]byte, error) {
	return c.signed(ctx, ask{
		method: http.MethodGet, path: "/api/public/integrity/" + publicID + "/receipt", public: true,
		wrong: checkPublicID(publicID),
	})
}

// Declare reads the final bytes of a version to their end and makes its declaration; it sends nothing. Store the
// declaration with the bytes and send this same declaration in every attempt.
func Declare(
	v wire.VersionReference, final io.Reader, mimeType string, generatedAt time.Time,
) (wire.Declaration, error) {
	sum := sha256.New()
	size, err := io.Copy(sum, final)
	if err != nil {
		return wire.Declaration{}, say.Errorf("hash: %w", err)
	}
	return wire.Declaration{
		CompanyReference: v.CompanyReference, Source: v.Source, DocumentReference: v.DocumentReference, Version: v.Version,
		SHA256: hex.EncodeToString(sum.Sum(nil)), SizeBytes: size, MimeType: mimeType,
		GeneratedAt: generatedAt.UTC().Format(time.RFC3339Nano),
	}, nil
}

// VerifyDeclared verifies saved evidence offline (contract section 4.1) and requires that it is about d: its hash and
// its references. Obtain trusted through another channel than the evidence. The error is nil exactly when signature,
// references and hash are valid and the record was not revoked when observed. It says nothing about the present state.
func VerifyDeclared(
	receipt []byte, trusted *evidence.TrustedKeys, d wire.Declaration, now time.Time,
) (evidence.Findings, error) {
	f := evidence.Verify(receipt, trusted, evidence.Options{
		Now: now, RequireReferences: true, Document: &evidence.Document{SHA256: d.SHA256, Size: d.SizeBytes},
	})
	if len(f.Reasons) > 0 {
		return f, say.Errorf("evidence: %s", f.Reasons[0])
	}
	envelope, err := evidence.ParseEnvelope(receipt)
	if err != nil {
		return f, say.Errorf("evidence: %w", err)
	}
	r := envelope.References
	if (wire.VersionReference{
		CompanyReference: r.CompanyReference, Source: r.Source, DocumentReference: r.DocumentReference,
		Version: int32(r.Version),
	}) != d.VersionReference() {
		return f, say.Errorf("evidence: it belongs to another version")
	}
	return f, nil
}
