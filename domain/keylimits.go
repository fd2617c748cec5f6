package domain

import (
	"fmt"
	"net/netip"

	"integrityledger/domain/strictjson"
)

// KeyLimits are the limits of an API key that a declaration is judged by. They
// are fixed when the key is made, so what authentication has read still holds
// when the group decides.
type KeyLimits struct {
	Source         *string // the one source that the key may declare; nil: any
	MaxVersionStep *int32  // how far above the document's highest version; nil: any
}

// CheckSource refuses a declaration of another source than the key's.
func (l KeyLimits) CheckSource(source string) error {
	if l.Source == nil || *l.Source == source {
		return nil
	}
	return Invalid([]FieldError{{
		Pointer: "/source", Code: "KEY_LIMIT", Message: "this key may declare one source only, and this is another; use a key of this source",
	}})
}

// checkVersion refuses a version too far above the highest accepted one (0 for a
// new document): a stolen key must not use up the version numbers of a document.
func (l KeyLimits) checkVersion(version, highest int32) error {
	if l.MaxVersionStep == nil || int64(version) <= int64(highest)+int64(*l.MaxVersionStep) {
		return nil
	}
	return Invalid([]FieldError{{
		Pointer: "/version", Code: "KEY_LIMIT",
		Message: fmt.Sprintf("this key may declare a version at most %d above the document's highest accepted version", *l.MaxVersionStep),
	}})
}

// ParseNetwork reads a CIDR network, or a single address as a network of one,
// and writes it in its one form: masked, and never IPv4 inside IPv6.
func ParseNetwork(text string) (string, error) {
	const words = "an address or a network such as 192.0.2.0/24 or 2001:db8::/32 was expected"
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		address, addressErr := netip.ParseAddr(text)
		if addressErr != nil || address.Zone() != "" {
			return "", fmt.Errorf(words+": %w", err)
		}
		prefix = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen())
	}
	if prefix.Addr().Is4In6() {
		return "", fmt.Errorf("%s, not IPv4 inside IPv6", words)
	}
	return prefix.Masked().String(), nil
}

// checkKeyLimits refuses limits that could not be enforced as they stand.
func checkKeyLimits(source, network *string, maxVersionStep *int32) error {
	var fields []FieldError
	if source != nil && !ValidReference(*source) {
		fields = append(fields, FieldError{Pointer: "/source", Code: strictjson.CodeFormat, Message: ReferenceRule})
	}
	if network != nil {
		if canonical, err := ParseNetwork(*network); err != nil || canonical != *network {
			fields = append(fields, FieldError{Pointer: "/network", Code: strictjson.CodeFormat, Message: "must be a network in its canonical form, such as 192.0.2.0/24"})
		}
	}
	if maxVersionStep != nil && *maxVersionStep < 1 {
		fields = append(fields, FieldError{Pointer: "/maxVersionStep", Code: strictjson.CodeRange, Message: "must be at least 1"})
	}
	if fields != nil {
		return Invalid(fields)
	}
	return nil
}
