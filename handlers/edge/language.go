package edge

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	xlanguage "golang.org/x/text/language"

	"integrityledger/domain/evidence"
)

// maxLanguages is the number of bytes of Accept-Language that are read; a longer header is ignored.
const maxLanguages = 500

// PreferredLanguage returns the service's language that Accept-Language (RFC 9110, section 12.5.4) prefers. It returns
// English if the header names only other languages, and other if it names none; * names none.
func PreferredLanguage(acceptLanguage []string, other evidence.Language) evidence.Language {
	preferred := strings.Join(acceptLanguage, ",")
	if len(preferred) > maxLanguages {
		return other
	}
	wanted, _, _ := xlanguage.ParseAcceptLanguage(preferred)
	wanted = slices.DeleteFunc(wanted, func(tag xlanguage.Tag) bool { return tag == anyLanguage })
	switch _, i, sure := ownLanguages.Match(wanted...); {
	case len(wanted) == 0:
		return other
	case sure == xlanguage.No:
		return evidence.English
	default:
		return []evidence.Language{evidence.Spanish, evidence.English}[i]
	}
}

var anyLanguage = xlanguage.MustParse("mul") // the parser's tag for *

var ownLanguages = xlanguage.NewMatcher([]xlanguage.Tag{xlanguage.Spanish, xlanguage.English})

// messagesFile has the Spanish text of every message of the API, by its English format (strictjson.Sentence).
//
//go:embed messages.es.json
var messagesFile []byte

func spanishMessages() (map[string]string, error) {
	var messages map[string]string
	if err := json.Unmarshal(messagesFile, &messages); err != nil {
		return nil, fmt.Errorf("messages.es.json: %w", err)
	}
	return messages, nil
}

// translated returns the Spanish text of a message. Any other text is returned unchanged.
func (s *Edge) translated(message string) string {
	if spanish, ok := s.spanish[message]; ok {
		return spanish
	}
	return message
}
