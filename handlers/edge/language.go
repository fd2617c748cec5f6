package edge

import (
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
