// Package demo shows the service to a newcomer: it implements the output and data of serve --demo, and the command
// origin-demo.
//
// # The origin system
//
// It issues PDF documents, delivers them at once and registers them with the service, in the six steps of the
// specification's "Intended integration pattern".
//
//  1. Allocate and store the company, document and version references.
//  2. Reserve the verification link, within --reserve-timeout.
//  3. If that fails, for whatever reason, issue the document without the link: issuing and downloading never depend
//     on the service.
//  4. Embed the link, finalize the PDF and compute its SHA-256.
//  5. Store the final PDF, its references and the outbox item with the declaration in one SQLite transaction, and
//     deliver the PDF at once.
//  6. A worker (package outbox) registers the declaration and stores the answer and the evidence.
//
// The principal QR code of a document is a direct download link to this system. The service's link is a second QR code,
// labelled as verification.
//
// # Crash safety
//
// Before step 5 commits, nothing was delivered or declared. The document keeps its references and is created again, and
// reserving again gives the same link. After step 5, the final bytes exist and never change: triggers refuse changes,
// and all code that reads the bytes first compares them with their hash. A document that was committed but not
// delivered is delivered at the next start. Delivering twice writes the same file. Package outbox makes the
// registration crash-safe.
package demo

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/clientcmd"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/handlers/client"
	"integrityledger/handlers/console"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
	"integrityledger/projections/session"
)

// Files in the data directory that only the demo writes.
const (
	File         = "demo.json"    // Access
	LogFile      = "serve.log"    // the service's log; every start appends to it
	CommandsFile = "commands.txt" // commands to try, with the demo's keys
)

const (
	demoCompany = "demo-company"
	Email       = "demo@example.org"
)

// Access is the content of demo.json.
type Access struct {
	BaseURL          string   `json:"baseUrl"`
	OrganizationID   string   `json:"organizationId"`
	CompanyReference string   `json:"companyReference"`
	Keys             demoKeys `json:"keys"`
}

type demoKeys struct {
	Worker string `json:"worker"`
	Admin  string `json:"admin"`
}

// Allowed returns an error unless the demo is reachable from this machine only: it prints its keys, and stores them in
// a file.
func Allowed(cfg config.Config, listening net.Addr) error {
	address, err := netip.ParseAddrPort(listening.String())
	if err != nil || !address.Addr().IsLoopback() || !config.IsLoopbackURL(cfg.BaseURL) {
		return say.Errorf(
			"the demo must stay on this machine: --listen and --base-url must be loopback, such as 127.0.0.1:8080",
		)
	}
	if cfg.Encrypted() {
		return say.Errorf(
			"the demo serves plain http on this machine: unset %sTLS_CERT and %sTLS_KEY", config.Prefix, config.Prefix,
		)
	}
	// The variable may remain from a client of a demo with another address. The service reads it too.
	if base, err := url.Parse(cfg.BaseURL); err != nil || cmp.Or(base.Port(), "80") != strconv.Itoa(int(address.Port())) {
		return say.Errorf(
			"the demo listens on %s, and %s is %s: unset it, or listen on its port with --listen", address,
			config.VariableBaseURL, cfg.BaseURL,
		)
	}
	return nil
}

// Demo holds the parts of the service that the demo uses.
type Demo struct {
	*cli.App
	Cfg      *config.Config
	Address  net.Addr
	Ledger   *eventstore.Ledger
	Store    *query.Store
	Sessions *session.Store
}

// Run creates the demo data, or reuses the existing data, and prints what to try next. It uses the API of the running
// server.
func (s *Demo) Run(ctx context.Context) error {
	if err := keyfiles.MakeDataDir(s.Cfg.DataDir); err != nil {
		return err
	}
	path := s.Cfg.InDataDir(File)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return say.Errorf("demo: %w", err)
	}
	var access Access
	if json.Unmarshal(text, &access) != nil {
		access = Access{} // missing, or in an old format: replace it
	}
	if !s.demoWorks(ctx, access) {
		if access, err = s.makeDemo(ctx, access); err != nil {
			return say.Errorf("demo: %w", err)
		}
	}
	access.BaseURL = s.Cfg.BaseURL
	if text, err = json.MarshalIndent(access, "", "  "); err != nil {
		return err
	}
	if err := keyfiles.Replace(path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return s.show(ctx, access)
}

// PrintLink prints a fresh link into the console for every active membership of an address, or says that the address
// has no active membership. The link leads to a page in the language of the page that asked for it.
func (s *Demo) PrintLink(ctx context.Context, l evidence.Language, address string) error {
	found, err := s.Sessions.Memberships(ctx, domain.EmailSHA256(address))
	if err != nil {
		return say.Errorf("demo: %w", err)
	}
	if len(found) == 0 {
		_, err = fmt.Fprintf(s.Out, "\n%s\n", s.Sayf("No active member has the address %s, so there is no link.", address))
		return err
	}
	for _, m := range found {
		link, err := s.signInLink(ctx, l, m.Organization, m.Email)
		if err != nil {
			return say.Errorf("demo: %w", err)
		}
		title := s.Sayf("A new link into the console for %s, for 15 minutes:", m.Email)
		if len(found) > 1 {
			title = s.Sayf("A new link into the console of %s for %s, for 15 minutes:", m.OrganizationName, m.Email)
		}
		if _, err := fmt.Fprintf(s.Out, "\n%s\n%s\n", title, link); err != nil {
			return err
		}
	}
	return nil
}

// demoWorks reports whether the API accepts the demo's keys.
func (s *Demo) demoWorks(ctx context.Context, access Access) bool {
	for _, key := range []string{access.Keys.Worker, access.Keys.Admin} {
		if _, _, ok := domain.ParseAPIKey(key); !ok {
			return false
		}
		api, err := s.client(key)
		if err != nil {
			return false
		}
		page, err := api.Companies(ctx, client.CompaniesQuery{}, "")
		api.Close()
		if err != nil || !slices.ContainsFunc(page.Companies, func(c wire.Company) bool {
			return c.Reference == access.CompanyReference
		}) {
			return false
		}
	}
	return true
}

func (s *Demo) client(key string) (*client.Client, error) {
	return client.New(client.Config{BaseURL: "http://" + s.Address.String(), APIKey: key, Name: clientcmd.Name})
}

// makeDemo creates new keys. It reuses the former keys' organization if this ledger has it.
func (s *Demo) makeDemo(ctx context.Context, former Access) (Access, error) {
	access := Access{CompanyReference: demoCompany}
	organization, err := domain.ParseID[domain.OrganizationID](former.OrganizationID)
	if err == nil {
		_, err = s.Store.Organization(ctx, organization)
	}
	if err != nil {
		if organization, err = operator.CreateOrganization(
			ctx, s.App, s.Ledger, s.Store, "Demo", domain.InternalPlan, true, nil,
		); err != nil {
			return access, err
		}
	}
	access.OrganizationID = organization.String()
	origin := ledger.Origin(s.App, organization)
	if err := s.Ledger.Do(ctx, &domain.AddMember{Origin: origin, Email: Email, Role: domain.Owner}); err != nil {
		return access, err
	}
	company := &domain.CreateCompany{Origin: origin, Reference: demoCompany}
	if err := s.Ledger.Do(ctx, company); err != nil {
		return access, err
	}
	for _, k := range []struct {
		name   string
		to     *string
		scopes []domain.Scope
	}{
		{"demo", &access.Keys.Worker, []domain.Scope{domain.IntegrityWrite, domain.IntegrityRead}},
		{"demo admin", &access.Keys.Admin, domain.Scopes()},
	} {
		key, text := domain.NewCreateKey(
			domain.CreateKey{Origin: origin, Email: Email, Name: k.name, Scopes: k.scopes, Lifetime: domain.DefaultKeyLifetime},
			s.Now(),
		)
		if err := s.Ledger.Do(ctx, key); err != nil {
			return access, err
		}
		grant := &domain.SetAccess{Origin: origin, Company: company.Outcome.ID, Key: key.Outcome.ID, Enabled: true}
		if err := s.Ledger.Do(ctx, grant); err != nil {
			return access, err
		}
		*k.to = text
	}
	return access, nil
}

// show prints the card and writes the commands to try. Each start uses a new document, so that the commands can be
// tried again.
func (s *Demo) show(ctx context.Context, access Access) error {
	binary, err := os.Executable()
	if err != nil {
		return say.Errorf("demo: %w", err)
	}
	in := func(name string) string { return keyfiles.Absolute(s.Cfg.InDataDir(name)) }
	example := in("example.txt") // any file will do
	if err := keyfiles.Replace(example, []byte("An example document of Integrity Ledger.\n"), 0o644); err != nil {
		return err
	}
	page, err := s.demoPage(ctx, access, example)
	if err != nil {
		return say.Errorf("demo: %w", err)
	}
	organization, err := domain.ParseID[domain.OrganizationID](access.OrganizationID)
	if err != nil {
		return say.Errorf("demo: %w", err)
	}
	signIn, err := s.signInLink(ctx, s.Language(), organization, Email)
	if err != nil {
		return say.Errorf("demo: %w", err)
	}
	filled := strings.NewReplacer(
		"{base}", access.BaseURL, "{integrity}", console.Quoted(binary), "{worker}", access.Keys.Worker, "{admin}",
		access.Keys.Admin, "{company}", access.CompanyReference,
		"{document}", "demo-"+s.Now().UTC().Format("20060102-150405"), "{file}", console.Quoted(example),
		"{page}", page, "{console}", signIn, "{example}", example, "{trusted}",
		console.Quoted(keyfiles.Absolute(s.Cfg.TrustedKeysPath())), "{dir}", keyfiles.Absolute(s.Cfg.DataDir),
		"{demo}", in(File), "{commands}", in(CommandsFile), "{log}", in(LogFile),
	)
	commands, err := s.text("commands")
	if err != nil {
		return err
	}
	if err := keyfiles.Replace(in(CommandsFile), []byte(filled.Replace(commands)), 0o600); err != nil {
		return err
	}
	card, err := s.text("card")
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(s.Out, filled.Replace(card))
	return err
}

// demoPage registers the example, which is the same at every start, and returns the address of its page.
func (s *Demo) demoPage(ctx context.Context, access Access, file string) (string, error) {
	declared, err := clientcmd.Declare(s.App, wire.Declaration{
		CompanyReference: access.CompanyReference, Source: "demo", DocumentReference: "example", Version: 1,
		GeneratedAt: "2026-01-01T00:00:00Z",
	}, []string{file})
	if err != nil {
		return "", err
	}
	api, err := s.client(access.Keys.Worker)
	if err != nil {
		return "", err
	}
	defer api.Close()
	record, err := api.Register(ctx, declared[0])
	if err != nil {
		return "", err
	}
	return s.Cfg.BaseURL + web.Path(s.Language(), "/integrity/"+record.PublicID), nil
}

// signInLink returns a console sign-in link for a member.
func (s *Demo) signInLink(
	ctx context.Context, l evidence.Language, organization domain.OrganizationID, address string,
) (string, error) {
	link, code := domain.NewMakeSignInLink(
		domain.MakeSignInLink{Origin: ledger.Origin(s.App, organization), Email: address}, s.Now(),
	)
	if err := s.Ledger.Do(ctx, link); err != nil {
		if refused, ok := errors.AsType[*domain.Error](err); ok && refused.Code == domain.NotFound {
			return s.Cfg.BaseURL + web.Path(l, web.ConsoleRoot), nil // the membership has been ended or disabled
		}
		return "", err
	}
	err := s.Sessions.AddOperatorLink(ctx, link.Outcome, s.Now())
	return console.SignInURL(s.Cfg.BaseURL, l, code), err
}

//go:embed card.txt card.es.txt commands.txt commands.es.txt
var texts embed.FS

// text returns an embedded text in the user's language.
func (s *Demo) text(name string) (string, error) {
	if s.Language() == evidence.Spanish {
		name += ".es"
	}
	text, err := texts.ReadFile(name + ".txt")
	return string(text), err
}
