package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"integrityledger/domain"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

const (
	demoFile    = "demo.json"
	demoCompany = "demo-company"
	demoEmail   = "demo@example.org"
)

// demoAccess is demo.json.
type demoAccess struct {
	BaseURL          string   `json:"baseUrl"`
	OrganizationID   string   `json:"organizationId"`
	CompanyReference string   `json:"companyReference"`
	Keys             demoKeys `json:"keys"`
}

type demoKeys struct {
	Worker string `json:"worker"`
	Admin  string `json:"admin"`
}

// demoAllowed keeps the demo on this machine: its keys are printed and lie in a file.
func demoAllowed(cfg Config, listening net.Addr) error {
	address, err := netip.ParseAddrPort(listening.String())
	if err != nil || !address.Addr().IsLoopback() || !isLoopbackURL(cfg.BaseURL) {
		return errors.New("the demo is for this machine alone: --listen and --base-url must be loopback, such as 127.0.0.1:8080")
	}
	if cfg.encrypted() {
		return fmt.Errorf("the demo speaks http on this machine alone: unset %sTLS_CERT and %sTLS_KEY", variablePrefix, variablePrefix)
	}
	return nil
}

// demo makes what a newcomer needs, or finds it again, and prints how to go on. It runs beside the server that it uses.
func (s *service) demo(ctx context.Context) error {
	if err := makeDataDir(s.cfg.DataDir); err != nil {
		return err
	}
	path := s.cfg.inDataDir(demoFile)
	access, err := readDemo(path)
	if err != nil {
		return err
	}
	if !s.demoWorks(ctx, access) {
		if access, err = s.makeDemo(ctx, access); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	access.BaseURL = s.cfg.BaseURL
	text, err := json.MarshalIndent(access, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return s.printDemo(ctx, access)
}

// readDemo returns an empty access where there is none, or none that can be read.
func readDemo(path string) (demoAccess, error) {
	var access demoAccess
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return access, nil
	}
	if err != nil {
		return access, fmt.Errorf("demo: %w", err)
	}
	if err := json.Unmarshal(text, &access); err != nil {
		return demoAccess{}, nil //nolint:nilerr // a file of another form is replaced
	}
	return access, nil
}

// demoWorks asks the API itself, which alone knows whether a key works.
func (s *service) demoWorks(ctx context.Context, access demoAccess) bool {
	for _, key := range []string{access.Keys.Worker, access.Keys.Admin} {
		if _, _, ok := domain.ParseAPIKey(key); !ok {
			return false
		}
		api, err := client.New(client.Config{BaseURL: "http://" + s.listener.Addr().String(), APIKey: key, UserAgent: userAgent})
		if err != nil {
			return false
		}
		page, err := api.Companies(ctx, false, "")
		api.Close()
		if err != nil || !slices.ContainsFunc(page.Companies, func(c wire.Company) bool { return c.Reference == access.CompanyReference }) {
			return false
		}
	}
	return true
}

// makeDemo makes new keys, in the organization of former ones where there is one in this ledger.
func (s *service) makeDemo(ctx context.Context, former demoAccess) (demoAccess, error) {
	access := demoAccess{CompanyReference: demoCompany}
	organization, err := domain.ParseID[domain.OrganizationID](former.OrganizationID)
	if err == nil {
		_, err = s.store.Organization(ctx, organization)
	}
	if err != nil {
		if organization, err = s.createOrganization(ctx, s.ledger, s.read, s.installed, "Demo", domain.InternalPlan, true, nil); err != nil {
			return access, err
		}
	}
	access.OrganizationID = organization.String()
	member, err := domain.NewAddMember(s.operator(organization), demoEmail, domain.Owner, s.now(), s.random)
	if err != nil {
		return access, err
	}
	if err := s.ledger.Do(ctx, member); err != nil {
		return access, err
	}
	company, err := domain.NewCreateCompany(s.operator(organization), demoCompany, s.now(), s.random)
	if err != nil {
		return access, err
	}
	if err := s.ledger.Do(ctx, company); err != nil {
		return access, err
	}
	for _, k := range []struct {
		to     *string
		scopes []domain.Scope
	}{
		{&access.Keys.Worker, []domain.Scope{domain.IntegrityWrite, domain.IntegrityRead}},
		{&access.Keys.Admin, domain.Scopes()},
	} {
		key, text, err := domain.NewCreateKey(domain.CreateKey{
			Origin: s.operator(organization), Email: demoEmail, Scopes: k.scopes, Lifetime: domain.DefaultKeyLifetime,
		}, s.now(), s.random)
		if err != nil {
			return access, err
		}
		if err := s.ledger.Do(ctx, key); err != nil {
			return access, err
		}
		grant, err := domain.NewSetAccess(s.operator(organization), company.Outcome.Company.ID, key.Outcome.ID, true, s.now(), s.random)
		if err != nil {
			return access, err
		}
		if err := s.ledger.Do(ctx, grant); err != nil {
			return access, err
		}
		*k.to = text
	}
	return access, nil
}

// printDemo prints the commands of a first visit. Each visit has a document of its own, so that they can be tried again.
func (s *service) printDemo(ctx context.Context, access demoAccess) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	directory, err := filepath.Abs(s.cfg.DataDir)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	example, err := s.exampleFile()
	if err != nil {
		return err
	}
	trusted, err := filepath.Abs(s.cfg.trustedKeysPath())
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	document := "demo-" + s.now().UTC().Format("20060102-150405")
	page, err := s.demoPage(ctx, access, example)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	_, err = fmt.Fprint(s.out, strings.NewReplacer(
		"{base}", access.BaseURL, "{integrity}", shellQuote(binary), "{worker}", access.Keys.Worker, "{admin}", access.Keys.Admin,
		"{company}", access.CompanyReference, "{document}", document, "{file}", shellQuote(example),
		"{page}", page, "{example}", example, "{trusted}", shellQuote(trusted), "{dir}", directory, "{demo}", filepath.Join(directory, demoFile),
	).Replace(demoScreen))
	return err
}

// demoPage registers the example, which is the same at every start, and returns the address of its page in English.
func (s *service) demoPage(ctx context.Context, access demoAccess, file string) (string, error) {
	declared, err := s.declare(wire.Declaration{
		CompanyReference: access.CompanyReference, Source: "demo", DocumentReference: "example", Version: 1, GeneratedAt: "2026-01-01T00:00:00Z",
	}, []string{file})
	if err != nil {
		return "", err
	}
	api, err := client.New(client.Config{BaseURL: "http://" + s.listener.Addr().String(), APIKey: access.Keys.Worker, UserAgent: userAgent})
	if err != nil {
		return "", err
	}
	defer api.Close()
	record, err := api.Register(ctx, declared[0])
	if err != nil {
		return "", err
	}
	return s.cfg.BaseURL + "/en/integrity/" + record.PublicID, nil
}

// exampleFile is a small text of this demo; any file does.
func (s *service) exampleFile() (string, error) {
	path, err := filepath.Abs(s.cfg.inDataDir("example.txt"))
	if err != nil {
		return "", fmt.Errorf("demo: %w", err)
	}
	return path, replaceFile(path, []byte("An example document of Integrity Ledger.\n"), 0o644)
}

func shellQuote(s string) string {
	if strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

const demoScreen = `
Integrity Ledger, demo. Ready at {base}   (Ctrl-C stops it; the data stays in {dir})

Anyone compares a file in the browser. Open this page (in Spanish without /en), and drop {example} on it:
{page}

Paste into another terminal. FILE may be any file of yours, a PDF say:

  export INTEGRITY_BASE_URL={base} INTEGRITY_API_KEY={worker}
  FILE={file}
  integrity() { {integrity} "$@"; }

1. Register its SHA-256 (the file stays where it is), and compare a copy
  URL=$(integrity register "$FILE" --company {company} --source demo --document {document} --version 1 --quiet)
  integrity compare "$FILE" "$URL"

2. Register a changed version 2: the first becomes historical, and neither matches the other
  cp "$FILE" "$FILE.v2"; echo changed >> "$FILE.v2"
  URL2=$(integrity register "$FILE.v2" --company {company} --source demo --document {document} --version 2 --previous-version 1 --quiet)
  integrity compare "$FILE.v2" "$URL2"; integrity compare "$FILE" "$URL"; integrity compare "$FILE" "$URL2"

3. Save the signed evidence, and verify it offline
  integrity evidence "$URL2" -o "$FILE.evidence.json"
  integrity verify "$FILE.evidence.json" {trusted} "$FILE.v2"

4. Withdraw version 2 with the admin key, and read the feed of changes
  curl -sS -X POST -H "Authorization: Bearer {admin}" -H 'Content-Type: application/json' \
    -d '{"reason":"only a demo"}' {base}/api/v1/integrity/records/"${URL2##*/}"/revoke; echo
  integrity compare "$FILE.v2" "$URL2"
  curl -sS -H "Authorization: Bearer $INTEGRITY_API_KEY" '{base}/api/v1/integrity/changes?companyReference={company}'; echo

These keys work on this machine only as long as this ledger exists; they are also in {demo}

`
