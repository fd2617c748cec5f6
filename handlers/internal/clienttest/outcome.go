// Package clienttest serves, in tests, the published answers to writes that did not succeed
// (schemas/outcome-vectors.json).
package clienttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"integrityledger/schemas"
)

// OutcomeVector is an unsuccessful answer to a write, and what a client must conclude from it.
type OutcomeVector struct {
	Name  string
	Break string // where the connection breaks; empty if there is an answer

	Answer struct {
		Status  int
		Headers map[string]string
		Body    string
	}
	Want struct {
		Refused, OutcomeUnknown       bool
		RetryAfter, RetryAfterAtLeast int64 // seconds
	}
}

// Where a connection breaks.
const (
	NoConnection = "connect"
	withinAnswer = "body"
)

// OutcomeVectors reads the published file.
func OutcomeVectors() ([]OutcomeVector, error) {
	text, err := schemas.File(schemas.OutcomesFile)
	if err != nil {
		return nil, err
	}
	var file struct{ Vectors []OutcomeVector }
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", schemas.OutcomesFile, err)
	}
	return file.Vectors, nil
}

// Serve answers a request whose body was read. To break the connection, it panics with http.ErrAbortHandler.
func (v OutcomeVector) Serve(w http.ResponseWriter) {
	if v.Break == withinAnswer {
		w.Header().Set("Content-Length", strconv.Itoa(100))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"data":`))
		_ = http.NewResponseController(w).Flush()
	}
	if v.Break != "" {
		panic(http.ErrAbortHandler)
	}
	for name, value := range v.Answer.Headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(v.Answer.Status)
	_, _ = w.Write([]byte(v.Answer.Body)) // the client may stop reading
}

// Waits reports whether d is the wait that the vector requires.
func (v OutcomeVector) Waits(d time.Duration) bool {
	if least := v.Want.RetryAfterAtLeast; least > 0 {
		return d >= time.Duration(least)*time.Second
	}
	return d == time.Duration(v.Want.RetryAfter)*time.Second
}
