package operator

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"time"

	"github.com/digitorus/timestamp"

	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/wait"
)

const (
	drillName     = "drill"
	drillPoll     = 50 * time.Millisecond
	drillPatience = 30 * time.Second // how long to wait for the copy's log
)

// prepare creates an organization that registers records, and pins an authority in the copy.
func (d *drill) prepare(ctx context.Context) (err error) {
	d.formerSigning = d.keys.signer.Key()
	if log := d.log.Load(); log != nil {
		d.formerLog = log.LogKey
	} else {
		return say.Errorf("the log key is revoked already: integrity keys rotate --transparency-log")
	}
	organization, err := CreateOrganization(
		ctx, d.App, d.ledger.Ledger, d.ledger.Store, drillName, domain.InternalPlan, true, nil,
	)
	if err != nil {
		return err
	}
	origin := ledger.Origin(d.App, organization)
	company := &domain.CreateCompany{Origin: origin, Reference: drillName}
	key, _ := domain.NewCreateKey(
		domain.CreateKey{
			Origin: origin, Email: "drill@example.org", Name: drillName, Scopes: domain.Scopes(),
			Lifetime: domain.DefaultKeyLifetime,
		},
		d.Now(),
	)
	for _, c := range []domain.Command{
		&domain.AddMember{Origin: origin, Email: "drill@example.org", Role: domain.Owner}, company, key,
	} {
		if err := d.ledger.Do(ctx, c); err != nil {
			return err
		}
	}
	if err := d.ledger.Do(
		ctx, &domain.SetAccess{Origin: origin, Company: company.Outcome.ID, Key: key.Outcome.ID, Enabled: true},
	); err != nil {
		return err
	}
	d.access = domain.Access{Organization: organization, Key: key.Outcome.ID}
	if d.authority, err = newDrillAuthority(d.Now); err != nil {
		return err
	}
	file := d.cfg.InDataDir(drillName + ".der")
	if err := keyfiles.WriteNew(file, d.authority.certificate.Raw, 0o600); err != nil {
		return err
	}
	return errors.Join(d.command("keys", "add-authority", drillName, file), d.hangUp())
}

// loseSigningKey loses the signing key, and verifies records from before and after the loss.
func (d *drill) loseSigningKey(ctx context.Context) {
	d.step("a record is registered, and its checkpoint stamped", func() (say.Sentence, bool, error) {
		return d.registered(ctx, &d.before, "before")
	})
	d.step("the signing key is lost", func() (say.Sentence, bool, error) {
		d.signingLost = d.whole()
		p, err := evidence.ParseRecordPayload([]byte(d.before.Payload))
		if err != nil {
			return say.Sentence{}, false, err
		}
		p.SHA256, p.ReceivedAt = evidence.Hash{}, d.signingLost.Add(-time.Hour).UTC().Truncate(time.Microsecond)
		signed, err := d.keys.signer.SignPayload(p.AppendCanonical(nil))
		d.forged = evidence.NewEnvelope(signed)
		return say.Sentencef(
			"at %s; the thief signs a record dated an hour earlier", evidence.FormatTime(d.signingLost),
		), true, err
	})
	d.step("before the loss is noticed, a record is registered", func() (say.Sentence, bool, error) {
		return d.registered(ctx, &d.meanwhile, "meanwhile")
	})
	d.step("another signing key is staged", func() (say.Sentence, bool, error) {
		err := d.command("keys", "rotate", "--stage")
		return say.Sentencef("distribute the trusted-keys file"), true, errors.Join(err, d.hangUp())
	})
	d.step("it is activated", func() (say.Sentence, bool, error) {
		err := errors.Join(d.command("keys", "rotate", "--activate"), d.hangUp())
		return say.Sentencef("%s signs", d.keys.signer.Key().KeyID), d.keys.signer.Key() != d.formerSigning, err
	})
	d.step("the lost key is revoked", func() (say.Sentence, bool, error) {
		err := errors.Join(
			d.command("keys", "compromise", "--since", evidence.FormatTime(d.signingLost), "--", d.formerSigning.KeyID),
			d.hangUp(),
		)
		return say.Sentencef(
			"compromised since %s; distribute the trusted-keys file again", evidence.FormatTime(d.signingLost),
		), !d.keys.trusted.Trusts(d.formerSigning), err
	})
	d.step("the service continues", func() (say.Sentence, bool, error) { return d.registered(ctx, &d.later, "later") })
	for _, c := range []struct {
		verify           say.Word
		envelope         *evidence.Envelope
		strict, accepted evidence.Finding
	}{
		{"verify the record before the loss", &d.before, evidence.Untrusted, evidence.Valid},
		{"verify the thief's record", &d.forged, evidence.Untrusted, evidence.Untrusted},
		{"verify the record under the lost key after the loss", &d.meanwhile, evidence.Untrusted, evidence.Untrusted},
		{"verify the record under the new key", &d.later, evidence.Valid, evidence.Valid},
	} {
		d.step(c.verify, func() (say.Sentence, bool, error) {
			strict, err := d.verify(*c.envelope, false)
			accepted, err2 := d.verify(*c.envelope, true)
			return say.Sentencef(
					"signature %s; with --accept-stamped-before-revocation %s", strict.Signature, accepted.Signature,
				),
				strict.Signature == c.strict && accepted.Signature == c.accepted, errors.Join(err, err2)
		})
	}
}

// loseLogKey loses the log key.
func (d *drill) loseLogKey(ctx context.Context) {
	d.step("the log key is lost", func() (say.Sentence, bool, error) {
		d.logLost = d.whole()
		return say.Sentencef("at %s", evidence.FormatTime(d.logLost)), true, nil
	})
	d.step("it is revoked", func() (say.Sentence, bool, error) {
		err := errors.Join(
			d.command("keys", "compromise", "--since", evidence.FormatTime(d.logLost), d.formerLog.Name+"+"+d.formerLog.KeyHash),
			d.hangUp(),
		)
		return say.Sentencef(
			"compromised since %s; no checkpoint is signed", evidence.FormatTime(d.logLost),
		), d.log.Load() == nil, err
	})
	d.step("verify a proof of inclusion under the revoked log key", func() (say.Sentence, bool, error) {
		stamped, err := d.verify(d.later, false)
		bare := d.later
		bare.Timestamps = nil
		unstamped, err2 := d.verify(bare, false)
		return say.Sentencef(
				"%s if its checkpoint was stamped before, otherwise %s", stamped.Inclusion, unstamped.Inclusion,
			),
			stamped.Inclusion == evidence.Valid && unstamped.Inclusion == evidence.Untrusted, errors.Join(err, err2)
	})
	d.step("another log key is staged and activated", func() (say.Sentence, bool, error) {
		err := errors.Join(
			d.command("keys", "rotate", "--transparency-log", "--stage"),
			d.command("keys", "rotate", "--transparency-log", "--activate"), d.hangUp(),
		)
		log := d.log.Load()
		if err != nil || log == nil {
			return say.Sentence{}, false, errors.Join(err, say.Errorf("the log has no valid key"))
		}
		return say.Sentencef("%s signs", log.KeyHash), log.LogKey != d.formerLog, nil
	})
	d.step("the newest checkpoint is signed again", func() (say.Sentence, bool, error) {
		log := d.log.Load()
		var status transparency.Status
		err := d.wait(ctx, func() (done bool, err error) {
			status, err = transparency.ReadStatus(ctx, d.ledger.Read)
			return status.SignedBy == log.Name+"+"+log.KeyHash, err
		})
		return say.Sentencef("%d leaves, by %s", status.Published, status.SignedBy), err == nil, err
	})
	d.step("verify a proof of inclusion under the new log key", func() (say.Sentence, bool, error) {
		e := d.later
		e.Timestamps = nil
		found, err := d.prove(ctx, &e)
		if err != nil {
			return say.Sentence{}, false, err
		}
		findings, err := d.verify(e, false)
		return say.Sentencef("%s, %s", findings.Inclusion, found), findings.Inclusion == evidence.Valid, err
	})
}

// registered registers a record, waits until the log contains it, and has the checkpoint stamped.
func (d *drill) registered(
	ctx context.Context, to *evidence.Envelope, document string,
) (found say.Sentence, held bool, err error) {
	registrar := domain.Registrar{
		Issuer: d.ledger.Installation.Issuer, Secret: d.ledger.Installation.Secret, Signer: d.keys.signer,
	}
	origin := domain.Origin{
		Organization: d.access.Organization, Actor: domain.KeyActor(d.access.Key), RequestID: d.RequestID(),
	}
	command, err := registrar.Prepare(origin, d.access.Key, domain.KeyLimits{}, domain.Declaration{
		VersionReference: domain.VersionReference{
			CompanyReference: drillName, Source: drillName, DocumentReference: document, Version: 1,
		},
		SHA256: sha256.Sum256([]byte(document)), SizeBytes: int64(len(document)), MimeType: "text/plain",
		GeneratedAt: "2026-01-02T03:04:05Z",
	}, d.Now())
	if err == nil {
		err = d.ledger.Do(ctx, command)
	}
	if err != nil {
		return say.Sentence{}, false, err
	}
	key := d.keys.signer.Key()
	stored, err := d.ledger.Store.Evidence(ctx, d.access, command.Outcome.PublicID)
	if err != nil {
		return say.Sentence{}, false, err
	}
	*to = evidence.NewEnvelope(evidence.NewSigned(stored.Record.Payload, stored.Record.Signature, key))
	if _, err := d.prove(ctx, to); err != nil {
		return say.Sentence{}, false, err
	}
	token, at, err := d.authority.stamp(to.Inclusion.Checkpoint)
	if err != nil {
		return say.Sentence{}, false, err
	}
	to.Timestamps = []evidence.Timestamp{{
		LeafIndex: to.Inclusion.LeafIndex, TreeSize: to.Inclusion.TreeSize, Hashes: to.Inclusion.Hashes,
		Checkpoint: to.Inclusion.Checkpoint,
		Tokens: []evidence.StampToken{
			{Authority: drillName, GenTime: evidence.FormatTime(at), Token: base64.StdEncoding.EncodeToString(token)},
		},
	}}
	findings, err := d.verify(*to, false)
	found = say.Sentencef("signed by %s, entry %d of the log", key.KeyID, to.Inclusion.LeafIndex)
	if findings.ExistedBefore != nil {
		found = say.Sentencef("%s, existed before %s", found, *findings.ExistedBefore)
	}
	return found, findings.Signature == evidence.Valid && findings.Inclusion == evidence.Valid &&
		findings.Time == evidence.Valid, err
}

// prove waits until the log contains a record, and adds the proof to the record's evidence.
func (d *drill) prove(ctx context.Context, e *evidence.Envelope) (found say.Sentence, err error) {
	p, err := evidence.ParseRecordPayload([]byte(e.Payload))
	if err != nil {
		return found, err
	}
	id, ok := domain.ParsePublicID(p.PublicID)
	if !ok {
		return found, say.Errorf("the public id is malformed")
	}
	stored, err := d.ledger.Store.Evidence(ctx, d.access, id)
	if err != nil {
		return found, err
	}
	err = d.wait(ctx, func() (done bool, err error) {
		e.Inclusion, err = d.reader.Inclusion(ctx, stored.Event.Shard, stored.Event.Position, stored.Leaf())
		if errors.Is(err, transparency.ErrNotIntegrated) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return found, err
	}
	return say.Sentencef("entry %d of %d", e.Inclusion.LeafIndex, e.Inclusion.TreeSize), nil
}

// verify returns the findings of a reader who pins the published trusted keys.
func (d *drill) verify(e evidence.Envelope, accept bool) (evidence.Findings, error) {
	published, err := d.keys.trusted.Published()
	if err != nil {
		return evidence.Findings{}, err
	}
	receipt, err := json.Marshal(e)
	return evidence.Verify(receipt, published, evidence.Options{Now: d.Now(), AcceptStampedBeforeRevocation: accept}), err
}

// wait polls until done returns true.
func (d *drill) wait(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, drillPatience)
	defer cancel()
	for {
		if over, err := done(); over || err != nil {
			return err
		}
		if err := wait.For(ctx, drillPoll); err != nil {
			return say.Errorf("the copy's log makes no progress: %w", err)
		}
	}
}

// whole waits until the current whole second is later than every token so far, and returns it. Tokens are dated in
// whole seconds.
func (d *drill) whole() time.Time {
	at := d.Now().UTC().Truncate(time.Second).Add(2 * time.Second)
	for now := d.Now(); now.Before(at); now = d.Now() {
		time.Sleep(at.Sub(now)) //nolint:forbidigo // two seconds at most
	}
	return at
}

// drillAuthority is a timestamp authority that exists for one drill.
type drillAuthority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	now         func() time.Time
}

var (
	extKeyUsage   = asn1.ObjectIdentifier{2, 5, 29, 37}
	timeStamping  = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 8}
	anyTSAPolicy  = asn1.ObjectIdentifier{1, 2, 3, 4}
	drillLifetime = time.Hour
)

func newDrillAuthority(now func() time.Time) (*drillAuthority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, say.Errorf("timestamp authority: %w", err)
	}
	usage, err := asn1.Marshal([]asn1.ObjectIdentifier{timeStamping})
	if err != nil {
		return nil, say.Errorf("timestamp authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: drillName}, NotBefore: now().Add(-drillLifetime),
		NotAfter:        now().Add(drillLifetime),
		KeyUsage:        x509.KeyUsageDigitalSignature,
		ExtraExtensions: []pkix.Extension{{Id: extKeyUsage, Critical: true, Value: usage}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, say.Errorf("timestamp authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	return &drillAuthority{key, certificate, now}, err
}

// stamp returns a token for a checkpoint, and the token's time. Like most authorities it gives whole seconds and an
// accuracy.
func (a *drillAuthority) stamp(checkpoint string) (token []byte, at time.Time, err error) {
	sum := sha256.Sum256([]byte(checkpoint))
	at = a.now().UTC().Truncate(time.Second)
	answer, err := (&timestamp.Timestamp{
		HashAlgorithm: crypto.SHA256, HashedMessage: sum[:], Time: at, Accuracy: time.Second, Policy: anyTSAPolicy,
		AddTSACertificate: true,
	}).CreateResponseWithOpts(a.certificate, a.key, crypto.SHA256)
	if err != nil {
		return nil, at, say.Errorf("stamp a checkpoint: %w", err)
	}
	parsed, err := timestamp.ParseResponse(answer)
	if err != nil {
		return nil, at, say.Errorf("stamp a checkpoint: %w", err)
	}
	return parsed.RawToken, at, nil
}
