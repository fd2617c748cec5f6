package handlers_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// The search is newest first, page by page, in granted companies only.
func TestSearch(t *testing.T) {
	s := open(t, options{})
	var ids []any
	for i := range 5 {
		ids = append([]any{s.registered("d", i+1, "same")}, ids...)
	}
	s.registered("d", 9, "different")
	s.reserved("d", 10)
	other := s.Organization(t, 1, domain.InternalPlan) // in the same shard
	s.send(http.MethodPost, integrity+"/records", other.Secret, declaration("d", 1, "same")).is(http.StatusCreated)
	company := s.Company(t, s.org, "company-2")
	s.Grant(t, s.org, s.org.Key.ID, company.ID, true)
	second := s.post(
		integrity+"/records", declaration("d", 1, "same").with(body{"companyReference": "company-2"}),
	).is(http.StatusCreated)["publicId"]

	path := integrity + "/records?sha256=" + strings.ToUpper(hash("same"))
	search := func(query string) (found []any, page wire.Records) {
		t.Helper()
		page = read[wire.Records](s.get(path+query), http.StatusOK)
		for _, r := range page.Records {
			found = append(found, r.PublicID)
		}
		return found, page
	}
	found, page := search("")
	equal(t, "found", []any{found, page.HasMore}, []any{append([]any{second}, ids...), false})
	s.Grant(t, s.org, s.org.Key.ID, company.ID, false)
	var paged []any
	for after := ""; ; {
		found, page := search("&limit=2" + after)
		paged = append(paged, found...)
		after = "&after=" + url.QueryEscape(*page.NextCursor)
		if !page.HasMore {
			rest, last := search("&limit=2" + after)
			equal(t, "after the end", []any{len(rest), last.NextCursor, last.HasMore}, []any{0, page.NextCursor, false})
			break
		}
	}
	equal(t, "pages", paged, ids)
	one := s.get(integrity + "/records/" + ids[0].(string))
	equal(t, "record", page.Records[1], read[wire.Record](one, http.StatusOK))
	none := read[wire.Records](s.get(integrity+"/records?sha256="+hash("nothing")), http.StatusOK)
	equal(t, "search of nothing", none, wire.Records{Records: []wire.Record{}})
	for query, want := range map[string]string{
		"":                                      "/companyReference REQUIRED",
		"?sha256=":                              "/sha256 FORMAT",
		"?limit=0&sha256=" + hash("x"):          "/limit RANGE",
		"?after=x&sha256=" + hash("x"):          "/after FORMAT",
		"?after=&sha256=" + hash("x"):           "/after FORMAT",
		"?after=zz&sha256=" + hash("x"):         "/after FORMAT",
		"?after=Y29tcGFueQ&sha256=" + hash("x"): "/after FORMAT",
		"?x=1&sha256=" + hash("x"):              "/x UNKNOWN_PARAMETER",
	} {
		if got := pointers(s.get(integrity+"/records"+query).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}
