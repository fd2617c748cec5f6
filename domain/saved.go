package domain

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"integrityledger/domain/compact"
)

// Saved is a part of a State in a form whose bytes depend only on its objects. An audit saves its state with it, and
// the next audit goes on from there. It contains the tables that decide whether a later event can follow, and no
// others: counters, texts, destinations, passkeys and statements judge no event, and sealed secrets and addresses stay
// out of the file. TestSaved lists every table.
type Saved []savedTable

// savedTable is one row of Parties or Papers: how to append all objects of a kind, and how to load them.
type savedTable struct {
	shape  string
	append func(dst []byte) []byte
	read   func(*compact.Reader)
}

// Append appends all objects, sorted by their keys.
func (s Saved) Append(dst []byte) []byte {
	for _, t := range s {
		dst = t.append(dst)
	}
	return dst
}

// Read loads the objects that Append has appended.
func (s Saved) Read(r *compact.Reader) {
	for _, t := range s {
		t.read(r)
	}
}

// Shape describes the form of the objects. See compact.Shape.
func (s Saved) Shape() string {
	var b strings.Builder
	for _, t := range s {
		fmt.Fprintln(&b, t.shape)
	}
	return b.String()
}

func rows[T any](all iter.Seq[T], add func(T)) savedTable {
	return savedTable{
		compact.Shape(reflect.TypeFor[T]()),
		func(dst []byte) []byte { return compact.AppendAll(dst, all) },
		func(r *compact.Reader) { compact.ReadAll(r, add) },
	}
}

type (
	savedGrant struct {
		Key     KeyID
		Company CompanyID
	}
	savedBackfill struct {
		Organization OrganizationID
		Backfill     Backfill
	}
	savedDocument struct {
		Document Document
		Versions []Version // by number
	}
	savedArtifact struct {
		Artifact     Artifact
		Versions     []ArtifactVersion // by number
		Certificates []Certificate     // by public id
	}
)

// Parties are the objects that act and that grant: organizations, members, keys, companies and links.
func (s *Loaded) Parties() Saved {
	return Saved{
		rows(objects(s.organizations), s.AddOrganization),
		rows(objects(s.members), s.AddMember),
		rows(objects(s.keys), s.AddKey),
		rows(objects(s.companies), s.AddCompany),
		rows(s.savedGrants(), func(g savedGrant) { s.AddGrant(g.Key, g.Company, true) }),
		rows(s.savedBackfills(), func(b savedBackfill) { s.AddBackfill(b.Organization, b.Backfill) }),
		rows(objects(s.links), s.AddLink),
	}
}

// Papers are documents with their versions and aliases, and artifacts with theirs and their certificates.
func (s *Loaded) Papers() Saved {
	return Saved{
		rows(s.savedDocuments(), func(d savedDocument) {
			document := s.AddDocument(d.Document)
			for _, v := range d.Versions {
				v.Document = document
				s.AddVersion(v)
			}
		}),
		rows(objects(s.aliases), s.AddAlias),
		rows(s.savedArtifacts(), func(a savedArtifact) {
			artifact := s.AddArtifact(a.Artifact)
			for _, v := range a.Versions {
				v.Artifact = artifact
				s.AddArtifactVersion(v)
			}
			for _, c := range a.Certificates {
				c.Artifact = artifact
				s.AddCertificate(c)
			}
		}),
	}
}

// objects lists the objects of a table by their ids.
func objects[K ~[16]byte, V any](t table[K, *V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, e := range sorted(t, func(a, b entry[K, *V]) int { return compareIDs(a.key, b.key) }) {
			if !yield(*e.value) {
				return
			}
		}
	}
}

func compareIDs[K ~[16]byte](a, b K) int { return bytes.Compare(a[:], b[:]) }

type entry[K, V any] struct {
	key   K
	value V
}

// sorted returns the entries of a table in order.
func sorted[K comparable, V any](t table[K, V], compare func(a, b entry[K, V]) int) []entry[K, V] {
	entries := make([]entry[K, V], 0, len(t))
	for key, value := range t {
		entries = append(entries, entry[K, V]{key, value})
	}
	slices.SortFunc(entries, compare)
	return entries
}

// savedGrants leaves out grants that were withdrawn, because they are like those that were never given.
func (s *Loaded) savedGrants() iter.Seq[savedGrant] {
	return func(yield func(savedGrant) bool) {
		for _, e := range sorted(s.grants, func(a, b entry[grantKey, bool]) int {
			return cmp.Or(compareIDs(a.key.key, b.key.key), compareIDs(a.key.company, b.key.company))
		}) {
			if e.value && !yield(savedGrant{e.key.key, e.key.company}) {
				return
			}
		}
	}
}

func (s *Loaded) savedBackfills() iter.Seq[savedBackfill] {
	return func(yield func(savedBackfill) bool) {
		for _, e := range sorted(s.backfills, func(a, b entry[OrganizationID, Backfill]) int {
			return compareIDs(a.key, b.key)
		}) {
			if !yield(savedBackfill{e.key, e.value}) {
				return
			}
		}
	}
}

func (s *Loaded) savedDocuments() iter.Seq[savedDocument] {
	return func(yield func(savedDocument) bool) {
		versions := sorted(s.versions, func(a, b entry[versionKey, *Version]) int {
			return cmp.Or(compareIDs(a.key.document, b.key.document), cmp.Compare(a.key.version, b.key.version))
		})
		for _, e := range sorted(s.documents, func(a, b entry[documentKey, *Document]) int {
			return compareIDs(a.value.ID, b.value.ID)
		}) {
			d := savedDocument{Document: *e.value}
			for ; len(versions) > 0 && versions[0].key.document == d.Document.ID; versions = versions[1:] {
				d.Versions = append(d.Versions, *versions[0].value)
			}
			if !yield(d) {
				return
			}
		}
	}
}

func (s *Loaded) savedArtifacts() iter.Seq[savedArtifact] {
	return func(yield func(savedArtifact) bool) {
		versions := sorted(s.artifactVersions, func(a, b entry[ArtifactVersionID, *ArtifactVersion]) int {
			v, w := a.value, b.value
			return cmp.Or(compareIDs(v.Artifact.ID, w.Artifact.ID), cmp.Compare(v.Number, w.Number))
		})
		certificates := sorted(s.certificates, func(a, b entry[PublicID, *Certificate]) int {
			return cmp.Or(compareIDs(a.value.Artifact.ID, b.value.Artifact.ID), compareIDs(a.key, b.key))
		})
		for artifact := range objects(s.artifacts) {
			a := savedArtifact{Artifact: artifact}
			for ; len(versions) > 0 && versions[0].value.Artifact.ID == artifact.ID; versions = versions[1:] {
				a.Versions = append(a.Versions, *versions[0].value)
			}
			for ; len(certificates) > 0 && certificates[0].value.Artifact.ID == artifact.ID; certificates = certificates[1:] {
				a.Certificates = append(a.Certificates, *certificates[0].value)
			}
			if !yield(a) {
				return
			}
		}
	}
}
