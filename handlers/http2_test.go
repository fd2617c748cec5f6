package handlers_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"integrityledger/domain"
)

// The limits of a body also apply over HTTP/2, where lengths and deadlines belong to a stream.
func TestHTTP2(t *testing.T) {
	s := open(t, options{})
	server := httptest.NewUnstartedServer(s.http.Config.Handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	s.http = server

	id := s.registered("a", 1, "one")
	s.post(integrity+"/records/"+id+"/revoke", nil).is(http.StatusOK)
	s.post(integrity+"/records", strings.Repeat(" ", 9000)).refuses(
		http.StatusRequestEntityTooLarge, domain.PayloadTooLarge,
	)
	r := s.request(http.MethodPost, integrity+"/records", s.org.Secret, struct{ io.Reader }{strings.NewReader("{}")})
	r.ContentLength = -1
	r.Header.Set("Content-Type", "application/json")
	s.exchange(r).refuses(http.StatusLengthRequired, domain.LengthRequired)

	response, err := server.Client().Do(s.request(
		http.MethodGet, integrity+"/changes?companyReference=company-1", s.org.Secret, nil,
	))
	check(t, err)
	defer response.Body.Close()
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusOK {
		t.Errorf("HTTP/%d, status %d", response.ProtoMajor, response.StatusCode)
	}
}
