package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/domain/evidence"
)

func (a *app) verifyCommand() *cobra.Command {
	var options evidence.Options
	var asJSON bool
	var language string
	c := &cobra.Command{
		Use: "verify RECEIPT TRUSTED [DOCUMENT]", Short: "Verify evidence offline",
		Long: "Verifies a receipt (saved evidence, or a public receipt) against a trusted-keys file that you got through a channel you\n" +
			"trust, and compares DOCUMENT with it. It asks no service, so it cannot say what is current now.\n" +
			"Exit code 0: everything supplied is valid. 1: something is not, differs, or was revoked. 2: it could not be checked.",
		Args: arguments(2, 3),
	}
	c.Flags().BoolVar(&options.RequireReferences, "require-references", false, "fail where the references are absent")
	c.Flags().BoolVar(&options.RequireCurrent, "require-current", false, "fail unless the evidence shows that the version was current when it was saved")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&language, "language", string(evidence.English), "language of the closing text, en or es")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if language != string(evidence.English) && language != string(evidence.Spanish) {
			return fmt.Errorf("--language: en or es was expected")
		}
		receipt, err := readReceipt(args[0])
		if err != nil {
			return err
		}
		trusted, err := readTrustedKeys(args[1])
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
		options.Now = a.now()
		findings := evidence.Verify(receipt, trusted, options)
		limits := evidence.Limits(evidence.Language(language), "")
		text := describeFindings(findings) + "\n" + evidence.LimitsTitle(evidence.Language(language)) + ":\n- " + strings.Join(limits, "\n- ") + "\n"
		if err := a.print(asJSON, struct {
			evidence.Findings
			Limits []string `json:"limits"`
		}{findings, limits}, text); err != nil {
			return err
		}
		if findings.ExitCode() != 0 {
			return negative{}
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
	line("references", string(f.References))
	observation := string(f.Observation)
	if f.ObservedStatus != nil && f.ObservedAt != nil {
		observation += fmt.Sprintf(": %s at %s", *f.ObservedStatus, *f.ObservedAt)
	}
	line("observation", observation)
	switch {
	case f.FileMatch == nil:
		line("file", "not compared")
	case *f.FileMatch:
		line("file", "matches the registered SHA-256")
	default:
		line("file", "DIFFERS from the registered SHA-256")
	}
	line("inclusion", string(f.Inclusion))
	if r := f.Record; r != nil {
		line("record", fmt.Sprintf("%s, received at %s by the clock of %s", r.PublicID, r.ReceivedAt, r.Issuer))
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
