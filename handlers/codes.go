package handlers

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"integrityledger/domain"
	"integrityledger/handlers/web"
)

// codesFile is the one table of error codes (contract section 2): status, whether a repetition helps, Retry-After, and
// the words of the page in both languages.
//
//go:embed codes.json
var codesFile []byte

// ErrorCodes lists the error codes in the order of the contract.
func ErrorCodes() ([]web.Code, error) {
	var codes []web.Code
	decoder := json.NewDecoder(bytes.NewReader(codesFile))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&codes); err != nil {
		return nil, fmt.Errorf("codes.json: %w", err)
	}
	return codes, nil
}

const htmlType = "text/html; charset=utf-8"

func page(body []byte, err error) (response, error) {
	return response{raw: body, contentType: htmlType, header: web.PageHeader()}, err
}

// publicPage is a page that is the same for everybody: anyone may keep it for five minutes.
func publicPage(body []byte, err error) (response, error) {
	resp, err := page(body, err)
	resp.cache = publicMinutes
	return resp, err
}

// errorPage explains a code: it is where the type of an error leads.
func (s *server) errorPage(r *http.Request) (any, error) {
	code, ok := s.codes[domain.Code(strings.ReplaceAll(strings.ToUpper(variable(r, "code")), "-", "_"))]
	if !ok || code.Address() != r.URL.Path {
		return nil, domain.Refuse(domain.NotFound, "There is no error with that name.")
	}
	return publicPage(s.site.Code(code))
}

// limitsPage shows the fixed text on what is and is not proven (contract section 10).
func (s *server) limitsPage(*http.Request) (any, error) { return publicPage(s.site.Limits()) }
