package clientcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/handlers/client"
)

// proofWait is the longest wait for the inclusion of a record that the service allows.
const proofWait = 25 * time.Second

func (a *app) evidenceCommand() *cobra.Command {
	c, flags := Command("evidence")
	if err := c.Flags().MarkHidden("json"); err != nil { // evidence is always JSON
		panic(err)
	}
	output := c.Flags().StringP("output", "o", "", "file to write (default or -: standard output)")
	at := c.Flags().String("at", "", "state as of this time (RFC 3339, at least a minute ago) or sequence")
	timestamps := c.Flags().Bool(
		"timestamps", false, "include the tokens of timestamp authorities, which show that the record existed before a time",
	)
	proof := c.Flags().Bool(
		"tlog-proof", false, "save the transparency log proof (C2SP tlog-proof) instead, and wait for it up to 25 seconds",
	)
	report := c.Flags().Bool(
		"report", false, "save the evidence report instead, a PDF for people with the evidence attached",
	)
	language := c.Flags().String("language", "", "language of the report, en or es (default: the locale's)")
	for _, other := range []string{"at", "timestamps", "report"} {
		c.MarkFlagsMutuallyExclusive("tlog-proof", other)
	}
	c.MarkFlagsMutuallyExclusive("report", "at")
	c.MarkFlagsMutuallyExclusive("report", "timestamps")
	c.RunE = func(c *cobra.Command, args []string) error {
		if key, err := apiKey(a.App); err == nil && key == "" {
			return a.withoutKey(args[0], flags.url)
		}
		record, service, err := a.recordClient(args[0], flags)
		if err != nil {
			return err
		}
		save := func(body []byte, err error) error {
			switch {
			case err != nil:
				return Refusal(err)
			case *output != "" && *output != "-":
				return keyfiles.Replace(*output, body, 0o600)
			}
			return a.WriteRaw(body)
		}
		if *report {
			in, err := a.languageNamed(*language)
			if err != nil {
				return err
			}
			return save(service.Report(c.Context(), record.publicID, in))
		}
		if *proof {
			return save(service.TlogProof(c.Context(), record.publicID, proofWait))
		}
		var options []client.EvidenceOption
		if c.Flags().Changed("at") {
			options = append(options, client.AsOf(*at))
		}
		if *timestamps {
			options = append(options, client.WithTimestamps())
		}
		return save(service.Evidence(c.Context(), record.publicID, options...))
	}
	return c
}

// withoutKey returns an error that lists the public addresses of a record, which need no API key.
func (a *app) withoutKey(record, url string) error {
	at, err := readLocation(record)
	if err != nil {
		return say.Errorf("PUBLIC_ID: %w", err)
	}
	base, err := a.serviceURL(url)
	if err != nil {
		return err
	}
	public := cmp.Or(at.base, base) + "/api/public/integrity/" + at.publicID
	return say.Errorf("%s must be an API key's text (ik_…); the public receipt, report and proof need no key: %s, %s and %s",
		config.VariableAPIKey, public+"/receipt", public+"/report", public+"/tlog-proof")
}

// recordClient creates an authenticated client for a record. It refuses a link to a service other than the configured
// one, so that the key is never sent there.
func (a *app) recordClient(text string, flags *Flags) (recordLocation, *client.Client, error) {
	at, err := readLocation(text)
	if err != nil {
		return at, nil, say.Errorf("PUBLIC_ID: %w", err)
	}
	service, err := Connect(a.App, flags)
	if err != nil {
		return at, nil, err
	}
	if at.base != "" && at.base != service.BaseURL() {
		return at, nil, say.Errorf(
			"PUBLIC_ID: the link leads to %s, but the key is for %s: set --url or %s if they are the same service", at.base,
			service.BaseURL(), config.VariableBaseURL,
		)
	}
	return at, service, nil
}

func (a *app) verifyCommand() *cobra.Command {
	var options evidence.Options
	c := manual().Command("verify")
	c.Flags().BoolVar(&options.RequireReferences, "require-references", false, "fail if the references are absent")
	c.Flags().BoolVar(
		&options.RequireCurrent, "require-current", false,
		"fail unless the evidence shows that the version was current when it was saved",
	)
	c.Flags().BoolVar(
		&options.RequireInclusion, "require-inclusion", false,
		"fail unless a valid proof shows that the transparency log contains the record",
	)
	c.Flags().BoolVar(
		&options.RequireTimestamp, "require-timestamp", false,
		"fail unless a pinned timestamp authority has stamped the record",
	)
	c.Flags().IntVar(
		&options.RequireWitnesses, "require-witnesses", 0,
		"fail unless this many pinned witnesses cosigned the inclusion proof's checkpoint",
	)
	c.Flags().BoolVar(&options.AcceptStampedBeforeRevocation, "accept-stamped-before-revocation", false,
		"accept a record whose signing key was revoked, if a pinned timestamp authority stamped it before")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	language := c.Flags().String("language", "", "language of the closing text, en or es (default: the locale's)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *language == "" && *asJSON {
			*language = string(evidence.English)
		}
		language, err := a.languageNamed(*language)
		if err != nil {
			return err
		}
		if options.RequireWitnesses < 0 {
			return say.Errorf("--require-witnesses must be 0 or more")
		}
		verify, err := a.readEvidence(c.Context(), args[0])
		if err != nil {
			return err
		}
		trusted, err := keyfiles.ReadTrusted(args[1])
		if err != nil {
			return cmp.Or(misplaced(args[1]), err)
		}
		if len(args) == 3 {
			h, err := a.hashFile(args[2])
			if err != nil {
				return err
			}
			options.Document = &evidence.Document{SHA256: h.sha256, Size: h.size}
		}
		options.Now = a.Now()
		findings, err := verify(trusted, options)
		if err != nil {
			return err
		}
		title, limits := evidence.LimitsTitle, evidence.Limits
		if findings.Certificate != nil {
			title, limits = evidence.CertificateLimitsTitle, evidence.CertificateLimits
		}
		points := limits(language, "")
		text := a.describeFindings(findings, len(trusted.Witnesses())) + "\n" + title(language) + ":\n- " +
			strings.Join(points, "\n- ") + "\n"
		return a.answer(*asJSON, struct {
			evidence.Findings
			Limits []string `json:"limits"`
		}{findings, points}, text, findings.ExitCode() == 0)
	}
	return c
}

// languageNamed returns the language that a flag names, or the locale's if it is empty.
func (a *app) languageNamed(text string) (evidence.Language, error) {
	switch language := evidence.Language(text); language {
	case "":
		return a.Language(), nil
	case evidence.English, evidence.Spanish:
		return language, nil
	}
	return "", say.Errorf("--language must be en or es")
}

// verification verifies what a file contains.
type verification func(*evidence.TrustedKeys, evidence.Options) (evidence.Findings, error)

// readEvidence reads a receipt, or the files attached to an evidence report.
func (a *app) readEvidence(ctx context.Context, path string) (verification, error) {
	receipt, err := readReceipt(path)
	if err != nil {
		return nil, err
	}
	if _, err := evidence.ParseTrustedKeys(receipt); err == nil {
		return nil, say.Errorf("%s is a trusted-keys file: it belongs in the place of TRUSTED, after RECEIPT", path)
	}
	if !evidence.IsReport(receipt) {
		return func(trusted *evidence.TrustedKeys, options evidence.Options) (evidence.Findings, error) {
			return evidence.Verify(receipt, trusted, options), nil
		}, nil
	}
	f, err := keyfiles.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	files, err := a.attachments(ctx, f, info.Size())
	if err != nil {
		return nil, say.Errorf("%s: %w", path, err)
	}
	return func(trusted *evidence.TrustedKeys, options evidence.Options) (evidence.Findings, error) {
		f, err := evidence.VerifyReport(files, trusted, options)
		if err != nil {
			err = say.Errorf("%s: %w", path, err)
		}
		return f, err
	}, nil
}

// misplaced says which other file of the command was given in the place of TRUSTED. It returns nil for an unknown file.
func misplaced(path string) error {
	text, err := readReceipt(path)
	if err != nil {
		return nil //nolint:nilerr // the caller reports why the file is no trusted-keys file
	}
	var receipt struct{ Payload, Signature string }
	switch {
	case evidence.IsReport(text):
		return say.Errorf("%s is a PDF, not a trusted-keys file: an evidence report belongs in the place of RECEIPT, a "+
			"document in the place of DOCUMENT", path)
	case strings.HasPrefix(string(text), "c2sp.org/tlog-proof@"):
		return say.Errorf("%s is a transparency log proof, not a trusted-keys file: it belongs in the place of RECEIPT", path)
	case json.Unmarshal(text, &receipt) == nil && receipt.Payload != "" && receipt.Signature != "":
		return say.Errorf("%s is a receipt, not a trusted-keys file: it belongs in the place of RECEIPT", path)
	}
	return nil
}

func readReceipt(path string) ([]byte, error) {
	return readAtMost(say.Word("receipt"), path, evidence.MaxReceiptBytes)
}

// describeFindings describes the findings as text, with the names and values that they have in JSON. witnesses is the
// number of pinned witnesses.
func (a *app) describeFindings(f evidence.Findings, witnesses int) string {
	var b strings.Builder
	write := func(name, text string) { fmt.Fprintf(&b, "%-13s %s\n", name, text) }
	sayLine := func(name, format string, values ...any) { write(name, a.Sayf(format, values...)) }
	file := func(matches, differs say.Word) {
		switch {
		case f.FileMatch == nil:
			sayLine("file", "not compared")
		case *f.FileMatch:
			write("file", a.Say(matches))
		default:
			write("file", a.Say(differs))
		}
	}
	sayLine("signature", "%s", f.Signature)
	if c := f.Certificate; c != nil {
		write(a.Sayf("validity"), a.Sayf("not established offline"))
		file(say.Word("matches the certified SHA-256"), say.Word("DIFFERS from the certified SHA-256"))
		sayLine("certificate", "%s, issued at %s by the clock of %s", c.PublicID, c.IssuedAt, c.Issuer)
		// Quote the organization's texts, so that they cannot imitate lines of this program.
		if c.Title != nil {
			sayLine("title", "%q, in the organization's words", *c.Title)
		}
		if c.OrganizationName != nil {
			sayLine("organization", "%q, in its own words", *c.OrganizationName)
		}
	} else if p := f.Publisher; p != nil {
		for _, d := range p.Domains {
			sayLine("domain", "%s, checked at %s (%s)", d.Domain, evidence.FormatTime(d.CheckedAt), d.Method)
		}
		if p.Name != nil {
			sayLine("organization", "%q, in its own words", *p.Name)
		}
	} else {
		sayLine("references", "%s", f.References)
		if f.ObservedStatus != nil && f.ObservedAt != nil {
			sayLine("observation", "%s: %s at %s", f.Observation, *f.ObservedStatus, *f.ObservedAt)
		} else {
			sayLine("observation", "%s", f.Observation)
		}
		switch { // past states are worded so that they cannot be taken for the present one
		case f.StatusAsOf == evidence.NotSupplied:
		case f.AsOf == nil || f.AsOfStatus == nil || f.AsOfSequence == nil:
			sayLine("history", "%s", f.StatusAsOf)
		default:
			sayLine("history", "%s as of %s (sequence %d); not the present state", *f.AsOfStatus, *f.AsOf, *f.AsOfSequence)
		}
		file(say.Word("matches the registered SHA-256"), say.Word("DIFFERS from the registered SHA-256"))
		sayLine("inclusion", "%s", f.Inclusion)
		if f.Witnessed != nil {
			sayLine("witnessed", "%d of %d", *f.Witnessed, witnesses)
		}
		switch {
		case f.Time == evidence.NotSupplied:
		case f.ExistedBefore == nil || f.TimeAuthority == nil:
			sayLine("time", "%s", f.Time)
		default:
			sayLine("time", "%s: existed before %s, says %s", f.Time, *f.ExistedBefore, *f.TimeAuthority)
		}
		if r := f.Record; r != nil {
			sayLine("record", "%s, received at %s by the clock of %s", r.PublicID, evidence.FormatTime(r.ReceivedAt), r.Issuer)
			sayLine("SHA-256", "%s, of %d bytes declared as %s", r.SHA256, r.SizeBytes, r.MimeType)
			sayLine("now", "not established offline: only the service says whether the version is current or revoked, on its "+
				"page /integrity/%s", r.PublicID)
		}
	}
	for _, note := range f.Notes {
		write(a.Sayf("note"), a.Say(note))
	}
	for _, reason := range f.Reasons {
		write(a.Sayf("NOT VALID"), a.Say(reason))
	}
	switch not := unchecked(f); {
	case len(f.Reasons) > 0:
		write(a.Sayf("verdict"), a.Sayf("NOT verified"))
	case len(not) > 0:
		write(a.Sayf("verdict"), a.Sayf("everything that was supplied and checked is valid; supplied, but NOT checked: %s",
			strings.Join(not, ", ")))
	default:
		write(a.Sayf("verdict"), a.Sayf("everything that was supplied and checked is valid"))
	}
	return b.String()
}

// unchecked names the parts of a record's evidence that were supplied and not checked, as the lines above name them.
func unchecked(f evidence.Findings) (names []string) {
	if f.Record == nil {
		return nil
	}
	for _, part := range []struct {
		name    string
		finding evidence.Finding
	}{
		{"references", f.References}, {"observation", f.Observation}, {"history", f.StatusAsOf}, {"inclusion", f.Inclusion},
		{"time", f.Time},
	} {
		if part.finding == evidence.NotChecked {
			names = append(names, part.name)
		}
	}
	return names
}
