package handlers_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"integrityledger/domain"
)

// TestSearch: newest first, page by page, granted companies only.
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
	search := func(query string) (found []any, page map[string]any) {
		t.Helper()
		page = s.get(path + query).is(http.StatusOK)
		for _, r := range page["records"].([]any) {
			found = append(found, r.(map[string]any)["publicId"])
		}
		return found, page
	}
	found, page := search("")
	equal(t, "found", []any{found, page["hasMore"]}, []any{append([]any{second}, ids...), false})
	s.Grant(t, s.org, s.org.Key.ID, company.ID, false)
	var paged []any
	for after := ""; ; {
		found, page := search("&limit=2" + after)
		paged = append(paged, found...)
		after = "&after=" + url.QueryEscape(page["nextCursor"].(string))
		if page["hasMore"] != true {
			rest, last := search("&limit=2" + after)
			equal(t, "after the end", []any{len(rest), last["nextCursor"], last["hasMore"]}, []any{0, page["nextCursor"], false})
			break
		}
	}
	equal(t, "pages", paged, ids)
	one := s.get(integrity + "/records/" + ids[0].(string)).is(http.StatusOK)
	equal(t, "record", page["records"].([]any)[1], one)
	if none := s.get(integrity + "/records?sha256=" + hash("nothing")).is(http.StatusOK); len(none["records"].([]any)) !=
		0 || none["nextCursor"] != nil {
		t.Errorf("search of nothing: %v", none)
	}
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
