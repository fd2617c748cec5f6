package handlers_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/wire"
)

// asOf requests evidence as of a moment and verifies it offline.
func (s *service) asOf(id, at string) evidence.Findings {
	s.t.Helper()
	a := s.get(integrity + "/records/" + id + "/evidence?at=" + url.QueryEscape(at))
	if a.status != http.StatusOK {
		s.t.Fatalf("as of %s: %s", at, a.body)
	}
	return evidence.Verify(a.body, s.Trusted, evidence.Options{Now: s.Now(), RequireReferences: true})
}

// head returns the organization's last event.
func (s *service) head() (sequence string, at time.Time) {
	s.t.Helper()
	e := s.history("limit=1")[0]
	return strconv.FormatInt(e.Sequence, 10), instant(s.t, e.OccurredAt)
}

// Evidence shows every state in the life of a record afterwards, by sequence and by time.
func TestEvidenceAsOfEarlierMoments(t *testing.T) {
	s := open(t, options{})
	before, beforeAt := s.head()
	id := s.registered("a", 1, "one")
	type moment struct {
		sequence string
		at       time.Time
		status   evidence.Status
	}
	var moments []moment
	mark := func(status evidence.Status) {
		sequence, at := s.head()
		moments = append(moments, moment{sequence, at, status})
		s.skew.Add(int64(time.Hour))
	}
	mark(evidence.Current)
	s.registered("b", 1, "another document")
	mark(evidence.Current)
	s.registered("a", 3, "three")
	mark(evidence.Superseded)
	s.post(integrity+"/records/"+id+"/revoke", nil).is(http.StatusOK)
	mark(evidence.Revoked)
	for _, m := range moments {
		for _, at := range []string{
			m.sequence, evidence.FormatTime(m.at), evidence.FormatTime(m.at.Add(time.Minute)),
			m.at.Add(time.Second).In(time.FixedZone("", 3600)).Format(time.RFC3339Nano),
		} {
			f := s.asOf(id, at)
			if f.StatusAsOf != evidence.Valid || *f.AsOfStatus != m.status ||
				strconv.FormatInt(*f.AsOfSequence, 10) != m.sequence ||
				f.Observation != evidence.NotSupplied || f.References != evidence.Valid ||
				(f.ExitCode() != 0) != (m.status == evidence.Revoked) {
				t.Errorf("as of %s: %+v, want %s", at, f, m.status)
			}
			if !strings.Contains(at, "+") && strings.Contains(at, "T") && *f.AsOf != at {
				t.Errorf("as of %s: %s", at, *f.AsOf)
			}
		}
	}
	s.hold() // so that a moment that is too late stays too late
	head := moments[len(moments)-1].sequence
	beyond, err := strconv.Atoi(head)
	check(t, err)
	for at, words := range map[string]string{
		before: "did not exist yet", evidence.FormatTime(beforeAt): "did not exist yet",
		"0001-01-01T00:00:00Z": "did not exist yet", "1": "did not exist yet",
		strconv.Itoa(beyond + 1): "whose last one is " + head, "9007199254740991": "whose last one is",
		evidence.FormatTime(s.Now().Add(-50 * time.Second)): "at least a minute ago",
		"9999-12-31T23:59:59Z":                              "at least a minute ago",
		"":                                                  "RFC 3339", "0": "RFC 3339", "-1": "RFC 3339",
		"01": "RFC 3339", "now": "RFC 3339", "2026-11-20": "RFC 3339", "2026-02-30T00:00:00Z": "RFC 3339",
		"9007199254740993": "RFC 3339", "2026-11-20T12:00:00 01:00": "RFC 3339",
	} {
		e := s.get(integrity+"/records/"+id+"/evidence?at="+url.QueryEscape(at)).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		)
		if field := e.Errors[0]; field.Pointer != "/at" || !strings.Contains(field.Message, words) {
			t.Errorf("at=%s: %v", at, field)
		}
	}
	unknown := strings.Repeat("a", 26)
	equalRefusal := func(at string) {
		s.get(integrity+"/records/"+unknown+"/evidence?at="+at).refuses(http.StatusNotFound, domain.RecordNotFound)
	}
	equalRefusal("1")
	equalRefusal(head)
	equalRefusal("9007199254740991")
	_, stranger := s.Key(t, s.org, domain.IntegrityRead)
	s.send(
		http.MethodGet, integrity+"/records/"+id+"/evidence?at="+head, stranger, nil,
	).refuses(http.StatusNotFound, domain.RecordNotFound)

	// The tool gives the same answers and refusals.
	got, isError := s.tool(integrityMCP, s.org.Secret, "integrity_export", body{"publicId": id, "at": moments[0].sequence})
	text, err := json.Marshal(got)
	check(t, err)
	if f := evidence.Verify(text, s.Trusted, evidence.Options{Now: s.Now()}); isError ||
		f.StatusAsOf != evidence.Valid || *f.AsOfStatus != evidence.Current {
		t.Errorf("the tool answers %s", text)
	}
	for _, at := range []any{"tomorrow", strconv.Itoa(beyond + 100), 3} {
		s.toolRefuses(integrityMCP, s.org.Secret, "integrity_export", body{"publicId": id, "at": at}, domain.InvalidData)
	}

	// Without a trusted key nothing is signed.
	keys := *s.keys.Load()
	keys.Signer = nil
	s.keys.Store(&keys)
	s.get(integrity+"/records/"+id+"/evidence?at="+head).refuses(
		http.StatusServiceUnavailable, domain.TemporarilyUnavailable,
	)
	s.Audit(t)
}

// The organization's usage is listed unit by unit, for callers that may see it.
func TestUsageIsListed(t *testing.T) {
	s := open(t, options{})
	s.hold()
	const path = integrity + "/usage/entries"
	month := read[wire.UsageEntries](s.get(path), http.StatusOK)
	equal(t, "an empty month", []any{month.Entries, month.NextCursor, month.HasMore, month.Organization},
		[]any{[]any{}, nil, false, wire.EntriesUsed{}})
	hidden := s.Company(t, s.org, "company-2")
	s.Grant(t, s.org, s.org.Key.ID, hidden.ID, true)
	for i := range 3 {
		s.registered("d", i+1, "content")
	}
	s.post(integrity+"/records", declaration("d", 2, "content")).is(http.StatusOK) // a replay
	other := declaration("e", 1, "content")
	other["companyReference"] = "company-2"
	s.post(integrity+"/records", other).is(http.StatusCreated)
	s.Grant(t, s.org, s.org.Key.ID, hidden.ID, false)

	used := s.usage().Organization.Used
	seen := map[int64]bool{}
	next := path + "?limit=2"
	for pages := 0; next != ""; pages++ {
		page := read[wire.UsageEntries](s.get(next), http.StatusOK)
		equal(t, "the figures of every page", page.Organization, wire.EntriesUsed{Used: used, Visible: 3, NotVisible: 1})
		for _, entry := range page.Entries {
			seen[entry.Sequence] = true
			record := read[wire.Record](s.get(integrity+"/records/"+entry.PublicID), http.StatusOK)
			equal(t, "an entry", entry.VersionReference, record.VersionReference)
			events := s.history("action=integrity.registered&target=" + entry.PublicID)
			event := events[0]
			equal(t, "its event", []any{len(events), event.ID, event.Sequence, event.OccurredAt},
				[]any{1, entry.EventID, entry.Sequence, entry.OccurredAt})
		}
		next = ""
		if page.HasMore && pages < 3 {
			next = path + "?limit=2&after=" + *page.NextCursor
		} else {
			again := read[wire.UsageEntries](s.get(path+"?after="+*page.NextCursor), http.StatusOK)
			equal(t, "behind the end", []any{len(again.Entries), again.NextCursor}, []any{0, page.NextCursor})
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d entries", len(seen))
	}
	cursor := s.get(path + "?limit=1").is(http.StatusOK)["nextCursor"].(string)
	for _, query := range []string{
		"?period=2026-13", "?period=2026-1", "?period=", "?period=202611", "?limit=0", "?limit=1001", "?after=x", "?after=",
		"?after=" + cursor + "A", "?period=2020-01&after=" + cursor, "?period=2026-11&period=2026-11",
	} {
		s.get(path+query).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
	}
	past := read[wire.UsageEntries](s.get(path+"?period=2020-01"), http.StatusOK)
	equal(t, "another month", []any{past.Period, past.Entries, past.Organization},
		[]any{"2020-01", []any{}, wire.EntriesUsed{}})
}

// The history can be filtered, and followed from a sequence.
func TestHistoryFilters(t *testing.T) {
	s := open(t, options{})
	const path = certificationAction + "/audit-events"
	id := s.registered("a", 1, "one")
	s.registered("a", 2, "two")
	s.post(integrity+"/records/"+id+"/revoke", body{"reason": "Wrong file."}).is(http.StatusOK)
	get := func(query string) wire.AuditEvents { return read[wire.AuditEvents](s.get(path+query), http.StatusOK) }
	about := get("?target=" + id)
	var actions []domain.EventType
	for _, e := range about.Events {
		actions = append(actions, e.Action)
	}
	equal(t, "what is about a record", actions, []any{"integrity.revoked", "integrity.superseded", "integrity.registered"})
	equal(t, "its reason", about.Events[0].Reason, "Wrong file.")
	total := about.Total
	page := get("?afterSequence=0&limit=3")
	equal(t, "the first page", []any{page.NextCursor, page.HasMore, page.Events[0].Action},
		[]any{3, true, "organization.created"})
	end := get("?limit=200&afterSequence=3")
	equal(t, "the rest", []any{len(end.Events), end.NextCursor, end.HasMore}, []any{total - 3, total, false})
	nothing := get("?afterSequence=" + strconv.FormatInt(total, 10))
	equal(t, "nothing yet", []any{nothing.Events, nothing.NextCursor, nothing.HasMore}, []any{[]any{}, total, false})
	for query, pointer := range map[string]string{
		"?afterSequence=" + strconv.FormatInt(total+1, 10): "/afterSequence", "?afterSequence=-1": "/afterSequence",
		"?afterSequence=":          "/afterSequence",
		"?action=integrity.regist": "/action", "?action=": "/action", "?target=" + strings.Repeat("a", 25): "/target",
		"?target=": "/target", "?target=d%20a": "/target",
	} {
		e := s.get(path+query).refuses(http.StatusUnprocessableEntity, domain.InvalidData)
		equal(t, query, e.Errors[0].Pointer, pointer)
	}
}
