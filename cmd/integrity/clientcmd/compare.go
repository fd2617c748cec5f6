package clientcmd

import (
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// recordLocation identifies a record by a link or by its publicId.
type recordLocation struct {
	base     string // empty for a bare publicId
	publicID string
}

// readLocation parses a verification link, the record's address in the public API, or a bare publicId.
func readLocation(text string) (recordLocation, error) {
	wrong := say.Errorf("it must be a verification link, or the 26 characters of a publicId")
	if _, ok := domain.ParsePublicID(text); ok {
		return recordLocation{publicID: text}, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return recordLocation{}, wrong
	}
	path := domain.StraightenLink(u.Path)
	for _, prefix := range []string{"/api/public/integrity/", "/en/integrity/", "/es/integrity/", "/integrity/"} {
		id, found := strings.CutPrefix(path, prefix)
		if _, ok := domain.ParsePublicID(strings.TrimSuffix(id, "/receipt")); !found || !ok {
			continue
		}
		if u.User != nil {
			return recordLocation{}, wrong
		}
		base, err := client.ParseBaseURL(u.Scheme + "://" + u.Host)
		if err != nil {
			return recordLocation{}, say.Errorf("URL: %w", err)
		}
		return recordLocation{base, strings.TrimSuffix(id, "/receipt")}, nil
	}
	return recordLocation{}, wrong
}

func (a *app) compareCommand() *cobra.Command {
	c, flags := Command("compare")
	c.RunE = func(c *cobra.Command, args []string) error {
		at, err := readLocation(args[1])
		if err != nil {
			return say.Errorf("URL: %w", err)
		}
		if at.base == "" {
			if at.base, err = a.serviceURL(flags.url); err != nil {
				return err
			}
		}
		h, err := a.hashFile(args[0])
		if err != nil {
			return err
		}
		service, err := client.New(client.Config{BaseURL: at.base, Name: Name, Language: a.Language()})
		if err != nil {
			return err
		}
		answer, err := service.Compare(c.Context(), at.publicID, h.sha256)
		if err != nil {
			return say.Errorf("it could not be checked, which is not a mismatch: %w", err)
		}
		text := string(answer.Result) + "\n" + a.Say(comparisonWords[answer.Result]) + "\n"
		return a.answer(flags.JSON, answer, text, answer.Verified)
	}
	return c
}

// comparisonWords explain the results (specification, Public comparison results).
var comparisonWords = map[wire.ComparisonResult]say.Word{
	wire.MatchCurrent: "The file is exactly the one that was registered, the signature is trusted and this is " +
		"the current version.",
	wire.MatchHistorical: "The file is exactly a version that was registered and signed, but it is not the " +
		"current version:\na version with a higher number is registered.",
	wire.HashMismatch: "The file is not the one that was registered under this link. It may be another " +
		"version, or its metadata may have changed;\nthis does not say who changed it or what the change means.",
	wire.RecordRevoked:   "The file is exactly the one that was registered, but the record has been revoked.",
	wire.FileNotCompared: "The service compared no file.",
	wire.SignatureInvalid: "The record's signature could not be validated, so its hash was not used: nothing is " +
		"known about the file.",
	wire.RegistrationPending: "The link is reserved, but nothing has been registered under it yet.",
	wire.RecordNotFound:      "The service knows no record of this link.",
}
