package ledgertest

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"integrityledger/domain"
)

// Everything gives an organization some history of every kind, so that no projection of its shard is empty, and that
// erased texts are among it. It returns the publicIds of two versions of one document.
func (l *Ledger) Everything(t testing.TB, o Organization) (first, second domain.PublicID) {
	t.Helper()
	now := l.Now()
	register := func(document string, version int32) domain.PublicID {
		c := l.Register(t, o, o.Declaration(document, version, fmt.Sprint(document, version)))
		l.Must(t, c)
		return c.Outcome.Record.PublicID
	}
	limits, err := domain.NewChangeLimits(o.Operator(), new(int32(9000)), now, rand.Reader)
	must(t, err)
	l.Must(t, limits)
	l.destinations(t, o)
	l.links(t, o)
	l.Must(t, l.Reserve(t, o, "reserved", 1))
	l.Must(t, l.Reserve(t, o, "everything", 1))
	first, second = register("everything", 1), register("everything", 2)
	register("late", 2)
	register("late", 1)
	withdrawn := register("withdrawn", 1)
	l.Must(t, l.Revoke(t, o, withdrawn))
	register("withdrawn", 2)
	spare, _ := l.Key(t, o, domain.IntegrityRead)
	revoke, err := domain.NewRevokeKey(o.Operator(), spare.ID, now, rand.Reader)
	must(t, err)
	l.Must(t, revoke)
	l.certification(t, o)
	return first, second
}

func (l *Ledger) destinations(t testing.TB, o Organization) {
	t.Helper()
	now := l.Now()
	key, _, err := domain.NewSecretKey(rand.Reader)
	must(t, err)
	create, _, err := domain.NewCreateWebhook(o.Origin(), "https://receiver.example/hook", "orders", domain.MaskOf(domain.WebhookTypes()), key, now, rand.Reader)
	must(t, err)
	l.Must(t, create)
	access, err := domain.NewSetWebhookAccess(o.Origin(), o.Company.ID, create.Outcome.ID, true, now, rand.Reader)
	must(t, err)
	l.Must(t, access)
	update, err := domain.NewUpdateWebhook(domain.UpdateWebhook{Origin: o.Origin(), Webhook: create.Outcome.ID}, nil, new("invoices"), now, rand.Reader)
	must(t, err)
	l.Must(t, update)
	rotate, _, err := domain.NewRotateSecret(o.Origin(), create.Outcome.ID, time.Hour, key, now, rand.Reader)
	must(t, err)
	l.Must(t, rotate)
}

func (l *Ledger) links(t testing.TB, o Organization) {
	t.Helper()
	now := l.Now()
	start, code, err := domain.NewStartLink(domain.StartLink{Origin: o.Operator(), Email: o.Email, Scopes: domain.OAuthScopes()}, now, rand.Reader)
	must(t, err)
	l.Must(t, start)
	id, secret, _ := domain.ParseLinkCode(code)
	redeem, err := domain.NewRedeemLink(domain.RedeemLink{
		Origin: o.Operator(), Link: id, SecretSHA256: secret, Subject: domain.NewOAuthSubject(l.Installation.Secret, "https://id.example", "somebody"),
	}, now, rand.Reader)
	must(t, err)
	l.Must(t, redeem)
	withdraw, err := domain.NewWithdrawConsent(domain.WithdrawConsent{Origin: o.Operator(), Link: id}, now, rand.Reader)
	must(t, err)
	l.Must(t, withdraw)
}

// certification takes two versions of an artifact to certificates, the first of which is replaced and the second
// revoked, then erases the first one's title.
func (l *Ledger) certification(t testing.TB, o Organization) {
	t.Helper()
	now := l.Now()
	retention, err := domain.NewChangeRetention(o.Operator(), 30, now, rand.Reader)
	must(t, err)
	l.Must(t, retention)
	credits, err := domain.NewAddCredits(o.Operator(), 5, now, rand.Reader)
	must(t, err)
	l.Must(t, credits)
	certifier := domain.Certifier{Issuer: l.Installation.Issuer, Secret: l.Installation.Secret, Signer: l.Registrar.Signer, Random: rand.Reader}
	var artifact domain.ArtifactID
	var titles []domain.TextID
	for _, content := range []string{"one", "two"} {
		sum := sha256.Sum256([]byte(content))
		c, err := domain.NewRegisterArtifactVersion(domain.RegisterArtifactVersion{
			Origin: o.Origin(), Artifact: artifact, Stored: true,
			Content: domain.Content{Kind: domain.TextContent, Title: "Title " + content, FileName: content + ".txt", MediaType: "text/plain", SHA256: sum, SizeBytes: int64(len(content))},
		}, now, rand.Reader)
		must(t, err)
		l.Must(t, c)
		artifact = c.ArtifactID()
		titles = append(titles, c.Outcome.Event.Title.ID)
		member := o.Key.Member
		review, err := domain.NewDeclareReview(domain.DeclareReview{
			Origin: o.Origin(), Artifact: artifact, Version: c.VersionID(), Member: member, Outcome: domain.ReviewAccepted, Statement: "read " + content, SHA256: sum,
		}, now, rand.Reader)
		must(t, err)
		l.Must(t, review)
		approve, err := domain.NewApproveArtifactVersion(domain.ApproveArtifactVersion{Origin: o.Origin(), Version: c.VersionID(), Member: member, Statement: "approved " + content}, now, rand.Reader)
		must(t, err)
		l.Must(t, approve)
		issue, err := certifier.Prepare(o.Origin(), member, c.VersionID(), sum, int64(len(content)), domain.Published{Title: new("Title " + content)}, now)
		must(t, err)
		l.Must(t, issue)
		if content == "two" {
			revoke, err := domain.NewRevokeCertificate(o.Origin(), issue.Outcome.Body.PublicID, "withdrawn", now, rand.Reader)
			must(t, err)
			l.Must(t, revoke)
		}
		if content == "one" {
			gone, err := domain.NewEraseContent(o.Operator(), c.VersionID(), now, rand.Reader)
			must(t, err)
			l.Must(t, gone)
		}
	}
	erase, err := domain.NewEraseTexts(o.Operator(), artifact.String(), titles[:1], now, rand.Reader)
	must(t, err)
	l.Must(t, erase)
}
