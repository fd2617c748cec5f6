package clientcmd

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/client"
)

func (a *app) evidenceCommand() *cobra.Command {
	var flags Flags
	var output, at string
	c := &cobra.Command{
		Use: "evidence PUBLIC_ID", Short: "Save the signed evidence of a record",
		Long: "Writes the evidence of a record exactly as the service gives it. It holds the references of the document. PUBLIC_ID may\n" +
			"also be the verification link. With --at it holds the state as of then in the place of the present one: history, which is\n" +
			"signed as such.",
		Args: cli.Arguments(1, 1),
	}
	flags.Add(c)
	if err := c.Flags().MarkHidden("json"); err != nil { // the evidence is JSON with or without it
		panic(err)
	}
	c.Flags().StringVarP(&output, "output", "o", "", "file to write (default: standard output)")
	c.Flags().StringVar(&at, "at", "", "state as of this time (RFC 3339, at least a minute ago) or sequence")
	c.RunE = func(c *cobra.Command, args []string) error {
		record, service, err := a.recordClient(args[0], flags)
		if err != nil {
			return err
		}
		var body []byte
		if c.Flags().Changed("at") {
			body, err = service.EvidenceAsOf(c.Context(), record.publicID, at)
		} else {
			body, err = service.Evidence(c.Context(), record.publicID)
		}
		if err != nil {
			return refusal(err)
		}
		if output != "" {
			return keyfiles.Replace(output, body, 0o600)
		}
		_, err = a.Out.Write(body)
		return err
	}
	return c
}

// recordClient makes the authenticated client for a record. A link of another service than the configured one is refused:
// the key must not travel to wherever a link leads.
func (a *app) recordClient(text string, flags Flags) (recordLocation, *client.Client, error) {
	at, err := readLocation(text)
	if err != nil {
		return at, nil, fmt.Errorf("PUBLIC_ID: %w", err)
	}
	service, err := Connect(a.App, flags)
	if err != nil {
		return at, nil, err
	}
	if at.base != "" && at.base != service.BaseURL() {
		return at, nil, fmt.Errorf("PUBLIC_ID: the link is of %s, and the key is for %s: set --url or %s if they are the same service", at.base, service.BaseURL(), config.VariableBaseURL)
	}
	return at, service, nil
}

func (a *app) verifyCommand() *cobra.Command {
	var options evidence.Options
	var asJSON bool
	var language string
	c := &cobra.Command{
		Use: "verify RECEIPT TRUSTED [DOCUMENT]", Short: "Verify evidence offline",
		Long: "Verifies a receipt (saved evidence, a public receipt, or a downloaded certificate) against a trusted-keys file that you got\n" +
			"through a channel you trust, and compares DOCUMENT with it. A proof that the transparency log holds the record is checked where\n" +
			"that file has logKeys. It asks no service, so it cannot say what is current now, nor whether a certificate is still valid.\n" +
			"Exit code 0: everything supplied is valid. 1: something is not, differs, or was revoked. 2: it could not be checked.",
		Args: cli.Arguments(2, 3),
	}
	c.Flags().BoolVar(&options.RequireReferences, "require-references", false, "fail where the references are absent")
	c.Flags().BoolVar(&options.RequireCurrent, "require-current", false, "fail unless the evidence shows that the version was current when it was saved")
	c.Flags().BoolVar(&options.RequireInclusion, "require-inclusion", false, "fail unless a valid proof shows that the transparency log holds the record")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&language, "language", string(evidence.English), "language of the closing text, en or es")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if language != string(evidence.English) && language != string(evidence.Spanish) {
			return fmt.Errorf("--language must be en or es")
		}
		receipt, err := readReceipt(args[0])
		if err != nil {
			return err
		}
		trusted, err := keyfiles.ReadTrusted(args[1])
		if err != nil {
			return err
		}
		if len(args) == 3 {
			h, err := a.hashFile(args[2])
			if err != nil {
				return err
			}
			options.Document = &evidence.Document{SHA256: h.sha256, Size: h.size}
		}
		options.Now = a.Now()
		findings := evidence.Verify(receipt, trusted, options)
		title, limits := evidence.LimitsTitle, evidence.Limits
		if findings.Certificate != nil {
			title, limits = evidence.CertificateLimitsTitle, evidence.CertificateLimits
		}
		points := limits(evidence.Language(language), "")
		text := describeFindings(findings) + "\n" + title(evidence.Language(language)) + ":\n- " + strings.Join(points, "\n- ") + "\n"
		if err := a.Print(asJSON, struct {
			evidence.Findings
			Limits []string `json:"limits"`
		}{findings, points}, text); err != nil {
			return err
		}
		if findings.ExitCode() != 0 {
			return cli.NegativeError("")
		}
		return nil
	}
	return c
}

// readReceipt reads at most one byte more than a receipt may have, so that a longer one is refused as such.
func readReceipt(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("receipt: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64<<10+1))
	if err != nil {
		return nil, fmt.Errorf("receipt: %w", err)
	}
	return text, nil
}

func describeFindings(f evidence.Findings) string {
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "%-13s %s\n", name, text) }
	line("signature", string(f.Signature))
	if f.Certificate != nil {
		describeCertificate(line, f)
	} else {
		describeRecord(line, f)
	}
	for _, note := range f.Notes {
		line("note", note)
	}
	for _, reason := range f.Reasons {
		line("NOT VALID", reason)
	}
	if len(f.Reasons) == 0 {
		line("verdict", "everything that was supplied and checked is valid")
	} else {
		line("verdict", "NOT verified")
	}
	return b.String()
}

func describeRecord(line func(name, text string), f evidence.Findings) {
	line("references", string(f.References))
	observation := string(f.Observation)
	if f.ObservedStatus != nil && f.ObservedAt != nil {
		observation += fmt.Sprintf(": %s at %s", *f.ObservedStatus, *f.ObservedAt)
	}
	line("observation", observation)
	describeHistory(line, f)
	describeFile(line, f.FileMatch, "registered")
	line("inclusion", string(f.Inclusion))
	if r := f.Record; r != nil {
		line("record", fmt.Sprintf("%s, received at %s by the clock of %s", r.PublicID, r.ReceivedAt, r.Issuer))
	}
}

// describeHistory says what the state was at an earlier moment, in words that cannot pass for the present one.
func describeHistory(line func(name, text string), f evidence.Findings) {
	switch {
	case f.StatusAsOf == evidence.NotSupplied:
	case f.AsOf == nil || f.AsOfStatus == nil || f.AsOfSequence == nil:
		line("history", string(f.StatusAsOf))
	default:
		line("history", fmt.Sprintf("%s as of %s (sequence %d); not the present state", *f.AsOfStatus, *f.AsOf, *f.AsOfSequence))
	}
}

// describeCertificate shows the organization's words in quotes, so that they cannot pass for lines of this program.
func describeCertificate(line func(name, text string), f evidence.Findings) {
	c := f.Certificate
	line("validity", "not established offline")
	describeFile(line, f.FileMatch, "certified")
	line("certificate", fmt.Sprintf("%s, issued at %s by the clock of %s", c.PublicID, c.IssuedAt, c.Issuer))
	if c.Title != nil {
		line("title", fmt.Sprintf("%q, in the organization's words", *c.Title))
	}
	if c.OrganizationName != nil {
		line("organization", fmt.Sprintf("%q, in its own words", *c.OrganizationName))
	}
}

func describeFile(line func(name, text string), match *bool, what string) {
	switch {
	case match == nil:
		line("file", "not compared")
	case *match:
		line("file", "matches the "+what+" SHA-256")
	default:
		line("file", "DIFFERS from the "+what+" SHA-256")
	}
}
