package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"integrityledger/cmd/lab/weather/history"
	"integrityledger/handlers/wire"
)

// callPatience is how long a client waits for an answer.
const callPatience = 25 * time.Second

// credential is an API key.
type credential struct{ id, text string }

// client makes one call at a time, and records each. It repeats nothing by itself.
type client struct {
	w    *world
	of   *organization
	name string
	rng  *rand.Rand
	http *http.Client
	ctx  context.Context // ends with the run's calls
	pace time.Duration   // maximum time between two calls
}

// outgoing is a request to send.
type outgoing struct {
	method, path string
	key          credential
	body         any
	raw          []byte // instead of body
	contentType  string
	header       map[string]string
}

// reply is the response.
type reply struct {
	status   int
	header   http.Header
	body     []byte
	complete bool
	data     json.RawMessage
	failure  *wire.Failure
	meta     wire.Meta
}

// begin returns a call that starts now.
func (c *client) begin(operation history.Operation, company string, request history.Request) history.Call {
	number := c.w.history.Number()
	call := history.Call{
		Number: number, RequestID: fmt.Sprintf("%s-%d", c.w.calls, number), Client: c.name, Company: company,
		Operation: operation, Request: request,
	}
	if c.of != nil {
		call.Organization = c.of.id
	}
	return call
}

// send sends a call's request and judges its outcome. It does not record the call yet.
func (c *client) send(call *history.Call, a outgoing) reply {
	body := a.raw
	if a.body != nil {
		text, err := json.Marshal(a.body)
		if err != nil {
			c.w.t.Error(err)
		}
		body, a.contentType = text, "application/json"
	}
	// Do not use the client's context: once sent, a request must be waited for.
	request, err := http.NewRequest(a.method, "http://front"+a.path, bytes.NewReader(body))
	if err != nil {
		c.w.t.Error(err)
		return reply{}
	}
	request.Header.Set("X-Request-Id", call.RequestID)
	if a.key.text != "" {
		request.Header.Set("Authorization", "Bearer "+a.key.text)
	}
	if a.contentType != "" {
		request.Header.Set("Content-Type", a.contentType)
	}
	for name, value := range a.header {
		request.Header.Set(name, value)
	}
	call.Key = a.key.id
	call.Start = c.w.history.Now()
	r := c.exchange(request)
	call.End = c.w.history.Now()
	call.Service = c.w.front.took(call.RequestID)
	call.Status = r.status
	call.Outcome = history.Judge(r.status, r.complete)
	if r.failure != nil {
		call.Code = string(r.failure.Code)
		if e := r.failure.Existing; e != nil {
			call.Answer.Existing = e.PublicID
		}
	}
	if text := r.header.Get("Integrity-Sequence"); text != "" {
		call.Answer.Sequence, _ = strconv.ParseInt(text, 10, 64)
	}
	call.Answer.Replayed = r.header.Get("Idempotent-Replayed") == "true"
	return r
}

func (c *client) exchange(request *http.Request) (r reply) {
	answer, err := c.http.Do(request)
	if err != nil {
		return reply{}
	}
	defer answer.Body.Close()
	r.status, r.header = answer.StatusCode, answer.Header
	if r.body, err = io.ReadAll(answer.Body); err != nil {
		return r
	}
	var envelope wire.Envelope[json.RawMessage]
	if err := json.Unmarshal(r.body, &envelope); err == nil {
		r.complete, r.data, r.failure, r.meta = true, envelope.Data, envelope.Error, envelope.Meta
	}
	return r
}

// write records a call, and notifies the faults that wait for a recovery.
func (c *client) write(call history.Call) {
	c.w.history.Call(call)
	if call.Outcome == history.Unknown && call.Operation.Writes() {
		c.of.wonder(call)
	}
	if call.Outcome == history.Answered && call.Operation.Writes() {
		c.w.recoveries.acknowledged(call.Start, call.End, call.Service)
	}
	if call.Status >= 500 && call.Status != http.StatusServiceUnavailable && call.Status != http.StatusBadGateway {
		c.w.violation(
			"%s %s was answered with %d %s (request %s)", call.Operation, call.Service, call.Status, call.Code, call.RequestID,
		)
	}
}

// decode decodes the data of an answered call.
func decode[T any](c *client, call *history.Call, r reply) (data T) {
	if call.Outcome != history.Answered {
		return data
	}
	if err := json.Unmarshal(r.data, &data); err != nil {
		c.w.violation("%s %s: %v in %.300s", call.Operation, call.RequestID, err, r.body)
	}
	return data
}

// rest waits until the next call. It returns false when the run's calls are over.
func (c *client) rest() bool {
	select {
	case <-c.ctx.Done():
		return false
	case <-time.After(time.Duration(c.rng.Int64N(int64(c.pace)))):
		return true
	}
}

// recordAnswer converts a record to the history's form.
func recordAnswer(r wire.Record) history.RecordAnswer {
	return history.RecordAnswer{
		PublicID: r.PublicID, RecordID: r.ID, Company: r.CompanyReference, Source: r.Source, Document: r.DocumentReference,
		Version: r.Version, Hash: r.SHA256,
		Status: string(r.Status), SupersededBy: r.SupersededByVersion, ReceivedAt: r.ReceivedAt,
	}
}
