package audit

import (
	"bytes"
	"encoding/binary"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// TestAside: the hand-written encoding equals encoding/binary's, and is read back unchanged.
func TestAside(t *testing.T) {
	now := time.UnixMicro(1_790_000_000_123_456).UTC()
	c := claimed{[16]byte{1}, [16]byte{2}, domain.NewOrganizationID(now, 3), -4, domain.NewID[domain.EventID](now)}
	want, err := binary.Append(nil, binary.BigEndian, c)
	if got := c.append(nil); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x, want %x, %v", got, want, err)
	}
	if got, err := readClaimed(bytes.NewReader(want)); err != nil || got != c {
		t.Errorf("%+v, want %+v, %v", got, c, err)
	}
	body := &domain.RecordSupersededBody{DocumentID: domain.NewID[domain.DocumentID](now), Version: 1, ByVersion: 2}
	e := Event{Event: domain.Event{
		Organization: c.Organization, ID: c.ID, Company: domain.NewID[domain.CompanyID](now), Sequence: 5, Position: -6,
		OccurredAt: now, Shard: 65535, V: 1,
		Type: domain.RecordSuperseded, Subject: "subject", Body: body,
	}}
	if e.Data, err = e.Canonical(); err != nil {
		t.Fatal(err)
	}
	want, err = binary.Append([]byte{asideEvent}, binary.BigEndian, struct {
		Organization                   domain.OrganizationID
		ID                             domain.EventID
		Company                        domain.CompanyID
		Sequence, Position, OccurredAt int64
		Shard                          domain.Shard
		V                              int16
		Lengths                        [4]uint32
	}{
		e.Organization, e.ID, e.Company, e.Sequence, e.Position, now.UnixMicro(), e.Shard, e.V,
		[4]uint32{uint32(len(e.Type)), 7, 11, uint32(len(e.Data))},
	})
	want = append(append(want, string(e.Type)+"subject"+"certificate"...), e.Data...)
	got := appendAside(nil, &e, "certificate")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x, want %x, %v", got, want, err)
	}
	back, certificate, err := readAside(bytes.NewReader(got[1:]))
	if err != nil || certificate != "certificate" || !reflect.DeepEqual(back, e) {
		t.Errorf("%+v, want %+v, %v", back, e, err)
	}
	for cut := range len(got) - 1 {
		if _, _, err := readAside(bytes.NewReader(got[1 : 1+cut])); err == nil {
			t.Fatalf("%d bytes of %d were read", cut, len(got)-1)
		}
	}
	if _, err := readClaimed(bytes.NewReader(c.append(nil)[:claimedSize-1])); err == nil {
		t.Error("a part of a claim was read")
	}
}

// TestLongHistories: checking a history of many acts of one kind takes time proportional to its length. If each act
// scanned all earlier ones, this test would take minutes to hours.
func TestLongHistories(t *testing.T) {
	const n = 50_000
	id := func(i int) (id [16]byte) {
		binary.BigEndian.PutUint32(id[4:], uint32(i)+1)
		return id
	}
	for name, act := range map[string]func(i int) (company [16]byte, first, second domain.Body){
		"members, each of whom is erased": func(i int) (none [16]byte, first, second domain.Body) {
			return none, &domain.MemberAddedBody{
				MemberID: id(i), Email: domain.TextRef{ID: id(i)},
			}, &domain.TextsErasedBody{Texts: []domain.TextID{id(i)}}
		},
		"destinations of many companies, each of which is deleted": func(i int) (company [16]byte, first, second domain.Body) {
			return id(i), &domain.WebhookAccessBody{WebhookID: id(i), Enabled: true},
				&domain.WebhookDeletedBody{WebhookID: id(i)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(Config{Parts: discarded{}, Trusted: &evidence.TrustedKeys{}})
			if err != nil {
				t.Fatal(err)
			}
			o := domain.OrganizationID{1}
			h := c.history(o)
			c.state.AddOrganization(domain.Organization{ID: o})
			for i := range 2 * n {
				company, body, second := act(i % n)
				if i >= n {
					body = second
				}
				e := Event{Event: domain.Event{Organization: o, Sequence: int64(i) + 1, Company: company, Body: body}}
				if err := c.apply(&e, h, &verdict{}); err != nil {
					t.Fatal(err)
				}
			}
			if h.findings.count != 0 {
				t.Error(h.findings.all[0])
			}
		})
	}
}

// discarded discards everything that is set aside.
type discarded struct{}

func (discarded) Append(int, []byte) error { return nil }
func (discarded) Open(int) io.Reader       { return strings.NewReader("") }
