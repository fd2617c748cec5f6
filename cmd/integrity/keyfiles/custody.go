package keyfiles

import (
	"strings"

	"integrityledger/handlers/wire"
)

// agentScheme begins the address of a key that an agent keeps.
const agentScheme = "agent:"

// Custody says where the private key is kept. It does not read the key itself, unless the key's file has the address of
// an agent.
func (s Source) Custody() wire.Custody {
	if path := s.Path(); path != "" {
		switch text, err := ReadFile(path); {
		case err != nil:
			return wire.CustodyNone
		case strings.HasPrefix(strings.TrimSpace(string(text)), agentScheme):
			return wire.CustodyAgent
		}
		return wire.CustodyFile
	}
	if strings.HasPrefix(strings.TrimSpace(s.Text), agentScheme) {
		return wire.CustodyAgent
	}
	return wire.CustodyVariable
}
