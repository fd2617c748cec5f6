package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"integrityledger/cmd/lab/weather/history"
	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

const (
	// lookers is how many look-ups of unknown writes run at once.
	lookers = 8
	// lookAgain is how often a look-up is repeated if its own outcome is unknown.
	lookAgain = 20
)

// lookUpUnknown looks up the object of each write with an unknown outcome, once per object, as its client would. It
// runs after all faults have healed and no client writes any more.
func (w *world) lookUpUnknown() {
	type job struct {
		of  *organization
		ask func(*client) history.Call
	}
	jobs := make(chan job)
	var looking sync.WaitGroup
	for n := range lookers {
		looking.Go(func() {
			http := w.front.client(callPatience)
			defer http.CloseIdleConnections()
			for j := range jobs {
				c := &client{
					w: w, of: j.of, name: fmt.Sprintf("%d-after", slices.Index(w.organizations, j.of)+1),
					rng: rand.New(rand.NewPCG(uint64(n), 0)), http: http, ctx: context.Background(),
					pace: 250 * time.Millisecond,
				}
				call := j.ask(c)
				for attempt := 1; call.Outcome == history.Unknown && attempt < lookAgain && c.rest(); attempt++ {
					call = j.ask(c)
				}
			}
		})
	}
	asked := 0
	for _, o := range w.organizations {
		for _, ask := range o.lookUps() {
			jobs <- job{o, ask}
			asked++
		}
	}
	close(jobs)
	looking.Wait()
	w.note("%d look-ups have asked what became of unknown writes", asked)
}

// lookUps are the reads that check.lookUps requires of a run.
func (o *organization) lookUps() map[string]func(*client) history.Call {
	questions, reserved := map[string]func(*client) history.Call{}, map[string][]history.Request{}
	for _, call := range o.unknown {
		r := call.Request
		switch call.Operation {
		case history.Register:
			d := wire.Declaration{
				CompanyReference: call.Company, Source: r.Source, DocumentReference: r.Document, Version: r.Version,
			}
			questions[fmt.Sprint("version ", d)] = func(c *client) history.Call { return c.lookUp(o.worker, d, nil) }
		case history.Reserve, history.Release:
			reserved[call.Company] = append(reserved[call.Company], r)
		case history.Revoke:
			k := known{wire.Declaration{CompanyReference: call.Company}, r.PublicID}
			questions["record "+r.PublicID] = func(c *client) history.Call { return c.record(k, nil) }
		case history.KeyRotate, history.KeyRevoke, history.Grant:
			questions["key "+r.Target+" "+call.Company] = func(c *client) history.Call {
				return c.readKey(r.Target, call.Company)
			}
		case history.Review, history.Approve, history.Certify:
			questions["artifact "+r.ArtifactVersion] = func(c *client) history.Call {
				return c.readArtifact(r.Artifact, r.ArtifactVersion)
			}
		case history.CertificateEnd:
			questions["certificate "+r.PublicID] = func(c *client) history.Call {
				return c.compareCertificate(r.PublicID, hashOf(""))
			}
		}
	}
	for company, requests := range reserved {
		questions["reservations "+company] = func(c *client) history.Call { return c.readReservations(company, requests) }
	}
	return questions
}

// readReservations looks for versions among a company's pending reservations. Each result is recorded as a separate
// call that lasts as long as reading all pages.
func (c *client) readReservations(company string, requests []history.Request) history.Call {
	call := c.begin(history.ReservationRead, company, history.Request{})
	began := c.w.history.Now()
	var found []wire.ReservedVersion
	for after := ""; ; {
		r := c.send(
			&call,
			outgoing{
				method: http.MethodGet,
				path:   integrityAPI + "/reservations?limit=200&status=pending&companyReference=" + company + after,
				key:    c.of.worker,
			},
		)
		page := decode[wire.Reservations](c, &call, r)
		if found = append(found, page.Reservations...); !page.HasMore {
			break
		}
		after = "&after=" + *page.NextCursor
	}
	call.Start = began
	if call.Outcome == history.Unknown {
		c.write(call)
		return call
	}
	for _, request := range requests {
		one := call
		one.Number, one.Request = c.w.history.Number(), history.Request{
			Source: request.Source, Document: request.Document, Version: request.Version, PublicID: request.PublicID,
		}
		if i := slices.IndexFunc(found, func(v wire.ReservedVersion) bool {
			return v.PublicID == request.PublicID ||
				v.VersionReference == (wire.VersionReference{
					CompanyReference: company, Source: request.Source, DocumentReference: request.Document, Version: request.Version,
				})
		}); i >= 0 {
			one.Answer.PublicID, one.Answer.ReservationStatus = found[i].PublicID, string(domain.ReservationPending)
		}
		c.write(one)
	}
	return call
}

// readKey reads a key's state as an administrator and, with a company, whether the key may use it.
func (c *client) readKey(id, company string) history.Call {
	call := c.begin(history.KeyRead, company, history.Request{Target: id})
	r := c.send(&call, outgoing{method: http.MethodGet, path: organizationAPI + "/keys/" + id, key: c.of.owner})
	if key := decode[wire.APIKey](c, &call, r); call.Outcome == history.Answered {
		call.Answer.KeyState, call.Answer.Granted = keyState(c, key), slices.Contains(key.Grants.Companies, company)
	}
	c.write(call)
	return call
}

// keyState recognises a rotated key by its expiry: other keys are valid for months.
func keyState(c *client, key wire.APIKey) string {
	made, err := time.Parse(time.RFC3339, key.CreatedAt)
	ends, wrong := time.Parse(time.RFC3339, key.ExpiresAt)
	switch {
	case err != nil || wrong != nil:
		c.w.violation("a key is from %q to %q", key.CreatedAt, key.ExpiresAt)
	case key.RevokedAt != nil:
		return "revoked"
	case ends.Sub(made) < 24*time.Hour:
		return "ending"
	}
	return "working"
}
