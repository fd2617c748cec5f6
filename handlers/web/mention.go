package web

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"integrityledger/domain"
)

// Mention is what a text from a person names. A text may be a link, a code, a hash, or a message that contains them.
type Mention struct {
	PublicID *domain.PublicID
	Kind     Kind   // of the link; empty if the text has only a code
	Host     string // that the link names, with its port, if any; empty if it names none
	SHA256   *[32]byte
	Hashes   int  // different ones in the text; SHA256 is nil unless there is exactly one
	Several  bool // the text has links, or otherwise codes, of several records; PublicID is the first one's
	Broken   bool // the text has a link or a code, but not a whole one
}

var (
	linkInText = regexp.MustCompile(
		`(?:([\pL\pM\pN.-]+(?::[0-9]+)?)(?:/en)?)?/(integrity|certificates)/([a-z2-7]{26})(?:[^a-z0-9]|$)`)
	codeInText = regexp.MustCompile(`\b()()([a-z2-7]{26})\b`)
	hashInText = regexp.MustCompile(`\b[a-f0-9]{64}\b`)

	// A link with any code, and a word that is about as long as a code.
	likeLink = regexp.MustCompile(`/(?:integrity|certificates)/[a-z0-9]|\b[a-z0-9]{24,28}\b`)

	// These read a text without its spaces and hyphens, which a host may lose too.
	splitLink = regexp.MustCompile(`()/(integrity|certificates)/([a-z2-7]{26})`)
	splitCode = regexp.MustCompile(`^\W*()()([a-z2-7]{26})\W*$`)
	splitHash = regexp.MustCompile(`^(?:sha256)?\W*([a-f0-9]{64})\W*$`)
)

// ReadMention finds the first link, or otherwise the first code, and the hash of a text that has only one. It accepts
// them as people write them: with capitals, between other words, percent-encoded in another link, in groups, on several
// lines.
func ReadMention(text string) (m Mention) {
	text = strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) { // such as a soft hyphen
			return -1
		}
		return r
	}, text)), "%2f", "/"), "%3a", ":")
	whole := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.Is(unicode.Pd, r) {
			return -1
		}
		return r
	}, text)
	for _, at := range []struct {
		pattern *regexp.Regexp
		text    string
	}{{linkInText, text}, {splitLink, whole}, {codeInText, text}, {splitCode, whole}} {
		if m.PublicID != nil {
			break
		}
		for _, found := range at.pattern.FindAllStringSubmatch(at.text, -1) {
			id, ok := domain.ParsePublicID(found[3])
			switch {
			case ok && m.PublicID != nil:
				m.Several = m.Several || id != *m.PublicID
			case ok:
				m.PublicID, m.Host = &id, strings.TrimSuffix(strings.Replace(found[1], ".:", ":", 1), ".")
				if found[2] != "" {
					m.Kind = Record
				}
				if found[2] == "certificates" {
					m.Kind = Certificate
				}
			}
		}
	}
	hashes := hashInText.FindAllString(text, -1)
	if split := splitHash.FindStringSubmatch(whole); len(hashes) == 0 && split != nil {
		hashes = split[1:]
	}
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	if m.Hashes = len(hashes); m.Hashes == 1 { // a text with two hashes does not say which one to compare
		if sum, ok := domain.ParseSHA256(hashes[0]); ok {
			m.SHA256 = &sum
		}
	}
	m.Broken = m.PublicID == nil && m.Hashes == 0 && likeLink.MatchString(text)
	return m
}
