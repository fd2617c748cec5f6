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

// Saved is a part of a State in a form whose bytes depend only on its objects. An audit saves its state with it, and the
// next audit goes on from there. It contains the tables that decide whether a later event can follow, and no others:
// counters, texts, destinations, passkeys and statements judge no event, and sealed secrets and addresses stay out of
// the file. TestSaved lists every table.
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
		for _, key := range sorted(t, compareIDs) {
			if !yield(*t[key]) {
				return
			}
		}
	}
}

func compareIDs[K ~[16]byte](a, b K) int { return bytes.Compare(a[:], b[:]) }

// sorted returns the keys of a table in order.
func sorted[K comparable, V any](t table[K, V], compare func(a, b K) int) []K {
	keys := make([]K, 0, len(t))
	for key := range t {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compare)
	return keys
}

// savedGrants leaves out grants that were withdrawn, because they are like those that were never given.
func (s *Loaded) savedGrants() iter.Seq[savedGrant] {
	return func(yield func(savedGrant) bool) {
		for _, g := range sorted(s.grants, func(a, b grantKey) int {
			return cmp.Or(compareIDs(a.key, b.key), compareIDs(a.company, b.company))
		}) {
			if s.grants[g] && !yield(savedGrant{g.key, g.company}) {
				return
			}
		}
	}
}

func (s *Loaded) savedBackfills() iter.Seq[savedBackfill] {
	return func(yield func(savedBackfill) bool) {
		for _, id := range sorted(s.backfills, compareIDs) {
			if !yield(savedBackfill{id, s.backfills[id]}) {
				return
			}
		}
	}
}

func (s *Loaded) savedDocuments() iter.Seq[savedDocument] {
	return func(yield func(savedDocument) bool) {
		versions := sorted(s.versions, func(a, b versionKey) int {
			return cmp.Or(compareIDs(a.document, b.document), cmp.Compare(a.version, b.version))
		})
		for _, key := range sorted(s.documents, func(a, b documentKey) int {
			return compareIDs(s.documents[a].ID, s.documents[b].ID)
		}) {
			d := savedDocument{Document: *s.documents[key]}
			for ; len(versions) > 0 && versions[0].document == d.Document.ID; versions = versions[1:] {
				d.Versions = append(d.Versions, *s.versions[versions[0]])
			}
			if !yield(d) {
				return
			}
		}
	}
}

func (s *Loaded) savedArtifacts() iter.Seq[savedArtifact] {
	return func(yield func(savedArtifact) bool) {
		versions := sorted(s.artifactVersions, func(a, b ArtifactVersionID) int {
			v, w := s.artifactVersions[a], s.artifactVersions[b]
			return cmp.Or(compareIDs(v.Artifact.ID, w.Artifact.ID), cmp.Compare(v.Number, w.Number))
		})
		certificates := sorted(s.certificates, func(a, b PublicID) int {
			return cmp.Or(compareIDs(s.certificates[a].Artifact.ID, s.certificates[b].Artifact.ID), compareIDs(a, b))
		})
		for artifact := range objects(s.artifacts) {
			a := savedArtifact{Artifact: artifact}
			for len(versions) > 0 && s.artifactVersions[versions[0]].Artifact.ID == artifact.ID {
				a.Versions, versions = append(a.Versions, *s.artifactVersions[versions[0]]), versions[1:]
			}
			for len(certificates) > 0 && s.certificates[certificates[0]].Artifact.ID == artifact.ID {
				a.Certificates = append(a.Certificates, *s.certificates[certificates[0]])
				certificates = certificates[1:]
			}
			if !yield(a) {
				return
			}
		}
	}
}
