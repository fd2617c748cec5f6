// Package publishers checks the domains that organizations say they control.
//
// An organization proves a domain with its id, in a TXT record under _integrity-ledger or in a file on the domain's web
// server. A domain is checked daily. An owner may also ask for a check, at most once a minute for each domain and
// MaxAsked times a minute for an organization.
//
// # What counts
//
// A proof counts at once, and one of the two ways is enough. A failure counts only if the way of the last proof has
// answered no: the resolver knows no such record, or the web server shows no such file. An answer that did not come, an
// invalid certificate and an error of the web server say nothing about the organization.
//
// A denial may also be a failure of the service's own resolver or network. It counts only if the resolver knows the
// name servers of the domain's top-level domain, and if a domain of another organization was proven in the last 24
// hours. The second condition does not apply while no other organization has a proven domain.
//
// # Safety
//
// Tenants choose the domains. Every connection is checked when it is dialled, after name resolution, so that no DNS
// answer can lead to a private address. Files are read over https alone, without redirects, up to 4 KiB. Nothing of an
// answer is kept but whether it has the organization's id.
package publishers
