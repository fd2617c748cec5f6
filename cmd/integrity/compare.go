package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/domain"
)

// recordLocation is a record as people name it: by a link or by its publicId.
type recordLocation struct {
	base     string // empty for a bare publicId
	publicID string
}

// readLocation understands the verification link, the public API's address and the bare publicId.
func readLocation(text string) (recordLocation, error) {
	wrong := errors.New("the verification link, or the 26 characters of a publicId, was expected")
	if _, ok := domain.ParsePublicID(text); ok {
		return recordLocation{publicID: text}, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return recordLocation{}, wrong
	}
	path := strings.TrimSuffix(u.Path, "/")
	for _, prefix := range []string{"/api/public/integrity/", "/en/integrity/", "/es/integrity/", "/integrity/"} {
		id, found := strings.CutPrefix(path, prefix)
		if _, ok := domain.ParsePublicID(strings.TrimSuffix(id, "/receipt")); !found || !ok {
			continue
		}
		base, err := parseOrigin(u.Scheme + "://" + u.Host)
		if err != nil || u.User != nil {
			return recordLocation{}, wrong
		}
		if u.Scheme == "http" && !isLoopbackURL(base) {
			return recordLocation{}, errors.New("https was expected; over http anybody between could answer")
		}
		return recordLocation{base, strings.TrimSuffix(id, "/receipt")}, nil
	}
	return recordLocation{}, wrong
}

// comparison is what of the public comparison matters here.
type comparison struct {
	PublicID string `json:"publicId"`
	Result   string `json:"result"`
	Verified bool   `json:"verified"`
}

func (a *app) compareCommand() *cobra.Command {
	var flags clientFlags
	c := &cobra.Command{
		Use: "compare FILE URL", Short: "Compare a file with a registered record",
		Long: "Compares the SHA-256 of FILE with the record that URL (the verification link, or a publicId) names. Only the hash is sent,\n" +
			"and no key is needed. Exit code 0: an exact match of the current version. 1: any other answer. 2: it could not be checked,\n" +
			"which is not a mismatch.",
		Args: arguments(2, 2),
	}
	flags.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		at, err := readLocation(args[1])
		if err != nil {
			return fmt.Errorf("URL: %w", err)
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
		var raw json.RawMessage
		err = newClient(at.base, "").get(c.Context(), "/api/public/integrity/"+at.publicID, url.Values{"sha256": {h.sha256}}, &raw)
		var api *apiError
		if errors.As(err, &api) && api.Status == 404 && api.Code == string(domain.RecordNotFound) {
			raw, _ = json.Marshal(comparison{PublicID: at.publicID, Result: api.Code}) // strings only: cannot fail
			err = nil
		}
		if err != nil {
			return fmt.Errorf("it could not be checked, which is not a mismatch: %w", err)
		}
		var answer comparison
		if err := json.Unmarshal(raw, &answer); err != nil || answer.PublicID != at.publicID {
			return errors.New("it could not be checked, which is not a mismatch: the answer is about something else")
		}
		words, known := comparisonWords(answer.Result)
		if !known {
			return fmt.Errorf("it could not be checked, which is not a mismatch: the result %q is not known to this program", answer.Result)
		}
		if err := a.print(flags.json, raw, answer.Result+"\n"+words+"\n"); err != nil {
			return err
		}
		if answer.Result != "MATCH_CURRENT" || !answer.Verified {
			return negative{}
		}
		return nil
	}
	return c
}

// comparisonWords explains a result (specification, Public comparison results).
func comparisonWords(result string) (string, bool) {
	words, ok := map[string]string{
		"MATCH_CURRENT":        "The file is exactly the one that was registered, the signature is trusted and this is the current version.",
		"MATCH_HISTORICAL":     "The file is exactly a version that was registered and signed, but a later version has replaced it since.",
		"HASH_MISMATCH":        "The file is not the one that was registered under this link. It may be another version, or its metadata may have changed;\nthis does not say who changed it or what the change means.",
		"RECORD_REVOKED":       "The file is exactly the one that was registered, but the record has been withdrawn.",
		"FILE_NOT_COMPARED":    "The service compared no file.",
		"SIGNATURE_INVALID":    "The record's signature could not be validated, so its hash was not used: nothing is known about the file.",
		"REGISTRATION_PENDING": "The link is reserved, but nothing has been registered under it yet.",
		"RECORD_NOT_FOUND":     "The service knows no record of this link.",
	}[result]
	return words, ok
}
