package keyfiles

import (
	"integrityledger/cmd/integrity/keyfiles/sshagent"
	"integrityledger/handlers/wire"
)

// Custody says where the private key is kept. It does not read the key itself, unless the key's file has the address of
// an agent.
func (s Source) Custody() wire.Custody {
	if path := s.Path(); path != "" {
		switch text, err := ReadFile(path); {
		case err != nil:
			return wire.CustodyNone
		case sshagent.IsAddress(string(text)):
			return wire.CustodyAgent
		}
		return wire.CustodyFile
	}
	if sshagent.IsAddress(s.Text) {
		return wire.CustodyAgent
	}
	return wire.CustodyVariable
}
