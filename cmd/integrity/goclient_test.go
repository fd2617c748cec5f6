package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// TestGoClient uses every operation of the Go client against the running service.
func TestGoClient(t *testing.T) {
	t.Parallel()
	s := surroundings{env: []string{"INTEGRITY_WEBHOOK_ALLOW_INSECURE=true"}}.start(t, dataDir(t), "--demo")
	access := s.demo()
	as := func(key string) *client.Client {
		t.Helper()
		c, err := client.New(client.Config{BaseURL: s.base, APIKey: key})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	worker, admin := as(access.Keys.Worker), as(access.Keys.Admin)
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	wantCode := func(what string, err error, code domain.Code) {
		t.Helper()
		var e *client.Error
		if !errors.As(err, &e) || e.Code != code || !client.Refused(err) || e.RequestID == "" {
			t.Errorf("%s: want %s: %v", what, code, err)
		}
	}

	created, err := admin.CreateCompany(ctx, "go-company")
	check(err)
	if again, err := admin.CreateCompany(ctx, "go-company"); err != nil || !again.Replayed || again.ID != created.ID ||
		created.Replayed {
		t.Errorf("the company again: %+v, %v", again, err)
	}
	version := wire.VersionReference{CompanyReference: "go-company", Source: "go", DocumentReference: "d-1", Version: 1}
	_, err = worker.Reserve(ctx, version)
	wantCode("without a grant", err, domain.CompanyNotAuthorized)
	granted, err := admin.GrantKey(ctx, created.ID, "key_"+access.Keys.Worker[3:29], true)
	check(err)
	companies, err := worker.Companies(ctx, client.CompaniesQuery{}, "")
	check(err)
	if !granted.Enabled || len(companies.Companies) != 2 {
		t.Errorf("granted: %+v, companies: %+v", granted, companies)
	}
	all, err := admin.Companies(ctx, client.CompaniesQuery{All: true, Status: domain.CompanyActive}, "")
	check(err)
	if len(all.Companies) != 2 || all.HasMore {
		t.Errorf("all companies: %+v", all)
	}
	webhook := webhookTo(t, s, access, "http://127.0.0.1:9/")
	if authorized, err := admin.GrantWebhook(ctx, created.ID, webhook, true); err != nil || !authorized.Enabled ||
		authorized.WebhookID != webhook {
		t.Errorf("webhook: %+v, %v", authorized, err)
	}

	reservation, err := worker.Reserve(ctx, version)
	check(err)
	if compared, err := worker.Compare(ctx, reservation.PublicID, ""); err != nil ||
		compared.Result != wire.RegistrationPending {
		t.Errorf("reserved: %+v, %v", compared, err)
	}
	_, err = worker.Lookup(ctx, version)
	wantCode("reserved only", err, domain.RecordNotFound)
	declaration, err := client.Declare(version, strings.NewReader("final bytes"), "application/pdf", time.Now())
	check(err)
	registered, err := worker.Register(ctx, declaration)
	check(err)
	if registered.PublicID != reservation.PublicID || registered.Consumption.Applied != 1 ||
		registered.Usage.Used == 0 || registered.CompanyContribution.Used != 1 {
		t.Errorf("registered: %+v", registered)
	}
	other := declaration
	other.SHA256 = strings.Repeat("b", 64)
	_, err = worker.Register(ctx, other)
	wantCode("another hash", err, domain.VersionConflict)
	var conflict *client.Error
	if errors.As(err, &conflict) && (conflict.Existing == nil || conflict.Existing.PublicID != registered.PublicID ||
		len(conflict.Fields) != 1 || conflict.Fields[0].Pointer != "/sha256") {
		t.Errorf("conflict: %+v", conflict)
	}
	second := declaration
	second.Version = 2
	results, err := worker.RegisterBatch(ctx, []wire.Declaration{declaration, second, other})
	check(err)
	if !results[0].Registration.Replayed || results[1].Registration.Version != 2 ||
		results[2].Err.Code != domain.VersionConflict {
		t.Errorf("batch: %+v", results)
	}

	found, err := worker.Lookup(ctx, version)
	check(err)
	byID, err := worker.Record(ctx, found.PublicID)
	check(err)
	if found.ID != byID.ID || found.Status != domain.StatusSuperseded || byID.SHA256 != declaration.SHA256 {
		t.Errorf("looked up %+v, retrieved %+v", found, byID)
	}
	for sum, want := range map[string]wire.ComparisonResult{
		declaration.SHA256: wire.MatchHistorical, strings.ToUpper(declaration.SHA256): wire.MatchHistorical,
		other.SHA256: wire.HashMismatch, "": wire.FileNotCompared,
	} {
		if compared, err := worker.Compare(ctx, found.PublicID, sum); err != nil || compared.Result != want ||
			compared.Verified {
			t.Errorf("%q: %+v, %v", sum, compared, err)
		}
	}
	verifyDeclared(t, s, worker, found.PublicID, declaration)
	if receipt, err := as("").Receipt(ctx, found.PublicID); err != nil ||
		!strings.Contains(string(receipt), `"payload":`) || strings.Contains(string(receipt), `"references":`) {
		t.Errorf("receipt: %s, %v", receipt, err)
	}
	if listed, err := worker.Records(ctx, client.RecordsQuery{SHA256: declaration.SHA256}, ""); err != nil ||
		len(listed.Records) != 2 || listed.HasMore {
		t.Errorf("records of a hash: %+v, %v", listed, err)
	}
	historical := client.RecordsQuery{
		CompanyReference: "go-company", Source: "go", DocumentReference: "d-1", Status: domain.StatusSuperseded,
		ReceivedFrom: found.ReceivedAt,
	}
	if listed, err := worker.Records(ctx, historical, ""); err != nil || len(listed.Records) != 1 ||
		listed.Records[0].ID != found.ID {
		t.Errorf("records of a company: %+v, %v", listed, err)
	}
	historical.ReceivedTo = historical.ReceivedFrom
	_, err = worker.Records(ctx, historical, "")
	wantCode("an empty interval", err, domain.InvalidData)
	unused, err := worker.Reserve(
		ctx, wire.VersionReference{CompanyReference: "go-company", Source: "go", DocumentReference: "d-2", Version: 1},
	)
	check(err)
	if list, err := worker.Reservations(ctx, "go-company", domain.ReservationPending, ""); err != nil ||
		len(list.Reservations) != 1 || list.Reservations[0].PublicID != unused.PublicID {
		t.Errorf("reservations: %+v, %v", list, err)
	}
	for _, replayed := range []bool{false, true} {
		if released, err := worker.ReleaseReservation(ctx, unused.PublicID); err != nil ||
			released.Status != domain.ReservationReleased || released.Replayed != replayed {
			t.Errorf("released: %+v, %v", released, err)
		}
	}

	usage, err := worker.Usage(ctx)
	check(err)
	if usage.Organization.Used != 3 || len(usage.Companies) != 2 { // including the demo's example
		t.Errorf("usage: %+v", usage)
	}
	entries, err := worker.UsageEntries(ctx, usage.Period, "")
	check(err)
	if len(entries.Entries) != 3 || entries.HasMore || entries.Organization != (wire.EntriesUsed{Used: 3, Visible: 3}) {
		t.Errorf("entries: %+v", entries)
	}
	history, err := worker.Evidence(ctx, found.PublicID, client.AsOf(strconv.FormatInt(entries.ThroughSequence, 10)))
	check(err)
	if e, err := evidence.ParseEnvelope(history); err != nil || e.StatusAsOf == nil || e.StatusObservation != nil {
		t.Errorf("evidence as of a sequence: %s, %v", history, err)
	}
	_, err = worker.Evidence(ctx, found.PublicID, client.AsOf("2020-01-01T00:00:00Z"))
	wantCode("before the record", err, domain.InvalidData)
	_, err = worker.Revoke(ctx, found.PublicID, "")
	wantCode("the worker's key revokes", err, domain.MissingScope)
	_, err = admin.GrantKey(ctx, created.ID, "key_"+access.Keys.Admin[3:29], true)
	check(err)
	if access, err := admin.CompanyAccess(ctx, created.ID, ""); err != nil || len(access.Access) != 2 ||
		access.HasMore || !access.Access[0].Enabled {
		t.Errorf("who may use the company: %+v, %v", access, err)
	}
	if told, err := admin.CompanyWebhooks(ctx, created.ID, ""); err != nil || len(told.Webhooks) != 1 ||
		told.Webhooks[0].WebhookID != webhook {
		t.Errorf("who hears of the company: %+v, %v", told, err)
	}
	closed, err := admin.SetCompanyStatus(ctx, created.ID, domain.CompanyClosedStatus)
	check(err)
	third := declaration
	third.Version = 3
	_, err = worker.Register(ctx, third)
	wantCode("a closed company", err, domain.CompanyClosed)
	if open, err := admin.SetCompanyStatus(ctx, created.ID, domain.CompanyActive); err != nil || open.ClosedAt != nil ||
		closed.ClosedAt == nil {
		t.Errorf("closed %+v, opened %+v, %v", closed, open, err)
	}
	withdrawn, err := admin.Revoke(ctx, found.PublicID, "only a test")
	check(err)
	if withdrawn.Status != domain.StatusRevoked || withdrawn.RevokedAt == nil || withdrawn.Replayed {
		t.Errorf("withdrawn: %+v", withdrawn)
	}
	var types []string
	check(client.Follower{Client: worker, Company: "go-company", Take: func(p client.Page) error {
		for _, e := range p.Events {
			types = append(types, strings.TrimPrefix(string(e.Type), "integrity."))
		}
		return nil
	}}.Run(ctx))
	if strings.Join(types, " ") != "registered registered superseded revoked" {
		t.Errorf("feed: %v", types)
	}
	changed, err := admin.UpdateWebhook(ctx, webhook, wire.WebhookChange{Description: new("changed"), Enabled: new(false)})
	check(err)
	another, err := admin.RotateWebhookSecret(ctx, webhook, wire.RotateRequest{OverlapSeconds: new(int64(0))})
	check(err)
	if read, err := admin.Webhook(ctx, webhook); err != nil || *read.Description != "changed" ||
		changed.Status != "disabled" || another.PreviousUntil != nil {
		t.Errorf("webhook: %+v, %+v, %+v, %v", read, changed, another.Webhook, err)
	}
	if deleted, err := admin.DeleteWebhook(ctx, webhook); err != nil || !deleted.Deleted {
		t.Errorf("deleted: %+v, %v", deleted, err)
	}
	organization, err := worker.Organization(ctx)
	check(err)
	if organization.ID != access.OrganizationID || organization.Limits.Versions.Used != 3 ||
		organization.Limits.Versions.ResetsAt == "" {
		t.Errorf("organization: %+v", organization)
	}
	_, err = worker.APIKeys(ctx, "")
	wantCode("a worker's key lists keys", err, domain.MissingScope)
	_, err = worker.InviteMember(ctx, "new@example.org", domain.Viewer)
	wantCode("a worker's key invites", err, domain.MissingScope)
	lookupCommands(t, s, access, found)
	webhookCommands(t, s, access)
}

// verifyDeclared requires that evidence verifies for its own declaration only.
func verifyDeclared(t *testing.T, s *running, c *client.Client, publicID string, d wire.Declaration) {
	t.Helper()
	receipt, err := c.Evidence(t.Context(), publicID)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, keyfiles.TrustedKeysFile))
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := evidence.ParseTrustedKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := client.VerifyDeclared(receipt, trusted, d, time.Now()); err != nil || f.Signature != evidence.Valid ||
		f.References != evidence.Valid {
		t.Errorf("evidence: %+v, %v", f, err)
	}
	for name, change := range map[string]func(*wire.Declaration){
		"SHA-256":         func(d *wire.Declaration) { d.SHA256 = strings.Repeat("b", 64) },
		"another version": func(d *wire.Declaration) { d.Version = 2 },
	} {
		changed := d
		change(&changed)
		if _, err := client.VerifyDeclared(receipt, trusted, changed, time.Now()); err == nil ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("evidence of something else, %s: %v", name, err)
		}
	}
	if _, err := client.VerifyDeclared(receipt, nil, d, time.Now()); err == nil {
		t.Error("evidence verified without a trusted key")
	}
}
