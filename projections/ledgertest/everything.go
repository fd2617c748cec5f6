package ledgertest

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"integrityledger/domain"
)

// Everything adds history of every kind to an organization, including erased texts, so that no projection of its shard
// is empty. It returns the publicIds of two versions of one document.
func (l *Ledger) Everything(t testing.TB, o Organization) (first, second domain.PublicID) {
	t.Helper()
	register := func(document string, version int32) domain.PublicID {
		c := l.Register(t, o, o.Declaration(document, version, fmt.Sprint(document, version)))
		l.Must(t, c)
		return c.Outcome.PublicID
	}
	l.Must(t, &domain.ChangeLimits{Origin: o.Operator(), Unfinalized: new(int32(9000))})
	l.Must(t, &domain.ChangeBackfill{Origin: o.Operator(), Versions: 3})
	l.destinations(t, o)
	l.links(t, o)
	l.passkeys(t, o)
	l.publishers(t, o)
	l.Must(t, l.Reserve(t, o, "reserved", 1))
	for _, after := range []string{"", "reserved", "registered"} {
		document := "released-" + after
		reserve := l.Reserve(t, o, document, 1)
		l.Must(t, reserve)
		l.Must(t, l.Release(t, o, reserve.Outcome.PublicID))
		switch after {
		case "reserved":
			l.Must(t, l.Reserve(t, o, document, 1))
		case "registered":
			register(document, 1)
		}
	}
	l.Must(t, l.Reserve(t, o, "everything", 1))
	first, second = register("everything", 1), register("everything", 2)
	register("late", 2)
	register("late", 1)
	withdrawn := register("withdrawn", 1)
	l.Must(t, l.Revoke(t, o, withdrawn))
	register("withdrawn", 2)
	l.healed(t, o)
	spare, _ := l.Key(t, o, domain.IntegrityRead)
	l.Must(t, &domain.RevokeKey{Origin: o.Operator(), Key: spare.ID})
	for _, status := range domain.CompanyStatuses() {
		l.Must(
			t,
			&domain.SetCompanyStatus{
				Origin: o.Operator(), Company: l.Company(t, o, "once-"+string(status)).ID, Status: domain.CompanyClosedStatus,
			},
		)
		l.Must(
			t,
			&domain.SetCompanyStatus{Origin: o.Operator(), Company: l.Company(t, o, "once-"+string(status)).ID, Status: status},
		)
	}
	l.administration(t, o)
	l.certification(t, o)
	return first, second
}

// healed restores lost records: with a receipt, with a declaration alone, revoked, and as an alias.
func (l *Ledger) healed(t testing.TB, o Organization) {
	t.Helper()
	anew := o.Declaration("everything", 1, "everything1")
	l.Heal(t, o, l.Lost(t, o, anew))
	for version := range int32(3) {
		lost := l.Lost(t, o, o.Declaration("healed", 3-version, "healed"))
		lost.Revoked = version == 1
		if version == 2 {
			lost.Receipt = nil
		}
		l.Heal(t, o, lost)
	}
}

// administration creates a key with a name and several networks, renames it, and creates a successor with the same
// name. It also invites two members, one of whom joins.
func (l *Ledger) administration(t testing.TB, o Organization) {
	t.Helper()
	now := l.Now()
	create, _ := domain.NewCreateKey(domain.CreateKey{
		Origin: o.Origin(), Member: o.Key.Member, Name: "accounting", Scopes: []domain.Scope{domain.IntegrityRead},
		Lifetime:  domain.MinKeyLifetime,
		KeyLimits: domain.KeyLimits{Networks: []string{"192.0.2.0/24", "2001:db8::/32"}},
		Companies: []string{o.Company.Reference},
	}, now)
	l.Must(t, create)
	l.Must(t, &domain.ChangeKey{Origin: o.Origin(), Key: create.Outcome.ID, Name: new("invoices")})
	rotate, _ := domain.NewRotateKey(
		domain.RotateKey{Origin: o.Origin(), Key: create.Outcome.ID, Lifetime: domain.MinKeyLifetime, CopyGrants: true}, now,
	)
	l.Must(t, rotate)
	key, _ := domain.NewSecretKey()
	for _, email := range []string{"joined@example.com", "invited@example.com"} {
		invite, code := domain.NewInviteMember(
			domain.InviteMember{Origin: o.Origin(), Email: email, Role: domain.Reviewer}, &key,
		)
		l.Must(t, invite)
		if organization, secret, _ := domain.ParseInvitationCode(code); email == "joined@example.com" {
			l.Must(t, &domain.AcceptInvitation{
				Origin:       domain.Origin{Organization: organization, Actor: domain.SystemActor, RequestID: "test"},
				SecretSHA256: secret,
			})
		}
	}
}

func (l *Ledger) destinations(t testing.TB, o Organization) {
	t.Helper()
	now := l.Now()
	key, _ := domain.NewSecretKey()
	create, _ := domain.NewCreateWebhook(
		domain.CreateWebhook{
			Origin: o.Origin(), URL: "https://receiver.example/hook", Description: "orders",
			Types: domain.MaskOf(domain.WebhookTypes()),
		},
		key, now,
	)
	l.Must(t, create)
	l.Must(
		t, &domain.SetWebhookAccess{Origin: o.Origin(), Company: o.Company.ID, Webhook: create.Outcome.ID, Enabled: true},
	)
	l.Must(t, &domain.UpdateWebhook{Origin: o.Origin(), Webhook: create.Outcome.ID, Description: new("invoices")})
	rotate, _ := domain.NewRotateSecret(
		domain.RotateSecret{Origin: o.Origin(), Webhook: create.Outcome.ID, Overlap: time.Hour}, key,
	)
	l.Must(t, rotate)
	next, _ := domain.NewSecretKey()
	reencrypt, err := domain.NewReencryptWebhook(o.Operator(), rotate.Outcome, domain.SecretKeys{next, key}, now)
	if err != nil {
		t.Fatal(err)
	}
	l.Must(t, reencrypt)
}

func (l *Ledger) links(t testing.TB, o Organization) {
	t.Helper()
	now := l.Now()
	start, code := domain.NewStartLink(
		domain.StartLink{Origin: o.Operator(), Email: o.Email, Scopes: domain.OAuthScopes()}, now,
	)
	l.Must(t, start)
	id, secret, _ := domain.ParseLinkCode(code)
	redeem := &domain.RedeemLink{
		Origin: domain.Origin{Organization: o.ID, Actor: domain.MemberActor(start.Outcome.Member), RequestID: "test"},
		Link:   id, SecretSHA256: secret,
		Subject: domain.NewOAuthSubject(l.Installation.Secret, "https://id.example", "somebody"),
	}
	l.Must(t, redeem)
	l.Must(t, &domain.WithdrawConsent{Origin: o.Operator(), Link: id})
}

func (l *Ledger) passkeys(t testing.TB, o Organization) {
	t.Helper()
	member := domain.Origin{Organization: o.ID, Actor: domain.MemberActor(o.Key.Member), RequestID: "test", Console: true}
	link, _ := domain.NewMakeSignInLink(domain.MakeSignInLink{Origin: o.Operator(), Member: o.Key.Member}, l.Now())
	l.Must(t, link)
	for i := range byte(2) {
		add := &domain.AddPasskey{
			Origin: member, Member: o.Key.Member, Name: "laptop",
			Credential: domain.Credential{CredentialID: []byte{i}, PublicKey: []byte{1}},
		}
		l.Must(t, add)
		if i == 0 {
			l.Must(t, &domain.RemovePasskey{Origin: member, Member: o.Key.Member, Passkey: add.Outcome.ID})
		}
	}
}

// publishers adds domains that are proven, lapsed and removed, and declares a name twice.
func (l *Ledger) publishers(t testing.TB, o Organization) {
	t.Helper()
	for i, method := range []domain.ProofMethod{domain.ProvenByDNS, domain.ProvenByHTTPS, ""} {
		add := &domain.AddDomain{Origin: o.Operator(), Domain: fmt.Sprintf("transportes%d.example", i)}
		l.Must(t, add)
		if method == "" {
			l.Must(t, &domain.RemoveDomain{Origin: o.Operator(), Domain: add.Outcome.ID})
			continue
		}
		l.Must(t, &domain.RecordDomainCheck{Origin: o.Operator(), Domain: add.Outcome.ID, Method: method})
		l.Must(t, &domain.RecordDomainCheck{Origin: o.Operator(), Domain: add.Outcome.ID})
	}
	member := domain.Origin{Organization: o.ID, Actor: domain.MemberActor(o.Key.Member), RequestID: "test", Console: true}
	for _, name := range []string{"Transportes García", "Transportes García SL"} {
		l.Must(t, &domain.DeclareName{Origin: member, Name: name, NoPrivatePerson: true})
	}
	l.Must(t, &domain.WithdrawName{Origin: member})
	l.Must(t, &domain.DeclareName{Origin: member, Name: "Transportes García SL", NoPrivatePerson: true})
}

// certification certifies two versions of an artifact. The first certificate is replaced, the second revoked, and the
// first version's title erased.
func (l *Ledger) certification(t testing.TB, o Organization) {
	t.Helper()
	now := l.Now()
	l.Must(t, &domain.ChangeRetention{Origin: o.Operator(), Days: 30})
	l.Must(t, &domain.AddCredits{Origin: o.Operator(), Credits: 5})
	var artifact domain.ArtifactID
	var titles []domain.TextID
	for _, content := range []string{"one", "two"} {
		sum := sha256.Sum256([]byte(content))
		c := domain.NewRegisterArtifactVersion(domain.RegisterArtifactVersion{
			Origin: o.Origin(), Artifact: artifact, Stored: true,
			Content: domain.Content{
				Kind: domain.TextContent, Title: "Title " + content, FileName: content + ".txt", MediaType: "text/plain",
				SHA256: sum, SizeBytes: int64(len(content)),
			},
		}, now)
		l.Must(t, c)
		artifact = c.Artifact
		titles = append(titles, c.Outcome.Event.Title.ID)
		member := o.Key.Member
		review := &domain.DeclareReview{
			Origin: o.Origin(), Artifact: artifact, Version: c.Version, Member: member, Outcome: domain.ReviewAccepted,
			Statement: "read " + content, SHA256: sum,
		}
		l.Must(t, review)
		l.Must(
			t,
			&domain.ApproveArtifactVersion{
				Origin: o.Origin(), Version: c.Version, Member: member, Statement: "approved " + content,
			},
		)
		issue, err := l.Registrar.Certify(
			o.Origin(), member, c.Version, sum, int64(len(content)), domain.Published{Title: new("Title " + content)}, now,
		)
		if err != nil {
			t.Fatal(err)
		}
		l.Must(t, issue)
		if content == "two" {
			l.Must(t, &domain.RevokeCertificate{Origin: o.Origin(), PublicID: issue.Outcome.Body.PublicID, Reason: "withdrawn"})
		}
		if content == "one" {
			l.Must(t, &domain.EraseContent{Origin: o.Operator(), Version: c.Version})
		}
	}
	l.Must(t, &domain.EraseTexts{Origin: o.Operator(), Subject: artifact.String(), Texts: titles[:1]})
}
