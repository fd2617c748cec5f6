package main

import (
	"integrityledger/cmd/integrity/ledger"
)

// warnOfFiles says at the start what would show as refused connections under load.
func (s *service) warnOfFiles() {
	limit, err := ledger.OpenFiles()
	if clients := ledger.ClientsFor(limit, ledger.DatabaseConns(s.installed.Shards)); err == nil && clients < ledger.FewClients {
		s.log.Warn("few files may be open, so few clients can be connected at once; "+ledger.RaiseFiles, "limit", limit, "clients", max(0, clients))
	}
}
