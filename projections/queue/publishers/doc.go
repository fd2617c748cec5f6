// Package publishers checks the domains that organizations say they control.
//
// An organization proves a domain with its id, in a TXT record under _integrity-ledger or in a file on the domain's web
// server. A domain is checked daily. An owner may also ask for a check, at most once a minute for each domain.
//
// # What counts
//
// A proof counts at once, and one of the two ways is enough. A failure counts only if the way of the last proof has
// answered no: the resolver knows no such record, or the web server shows no such file. An answer that did not come
// says nothing about the organization, because the service's own network may have failed. The same is true of a round in
// which every one of several proven domains fails. It counts for none of them.
//
// # Safety
//
// Tenants choose the domains. Every connection is checked when it is dialled, after name resolution, so that no DNS
// answer can lead to a private address. Files are read over https alone, without redirects, up to 4 KiB. Nothing of an
// answer is kept but whether it has the organization's id.
package publishers
