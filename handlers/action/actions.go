// Package action implements what the service does, with one file per resource. An action takes input that its one
// reader has validated, asks the ledger to decide a command or answers a query, and returns a result of its own type.
// The faces (api, mcp, console, site) differ only in the source of the input and the form of the result. Only this
// package reaches the ledger, and no face makes decisions. An action returns an edge.Response only if the bytes
// themselves are the result: stored documents, and stored answers to repeated requests.
package action

import (
	"context"
	"io"
	"math"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/analysis"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore"
	"integrityledger/eventstore/fair"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/projections/queue/publishers"
	"integrityledger/projections/queue/webhooks"
)

// Config configures the actions.
type Config struct {
	Notifier *eventstore.Notifier // wakes the requests that wait for feed events
	// Keys returns the current signing keys; they may be reloaded at any time.
	Keys func() Keys
	// Analyze analyses an open file of size bytes (see cmd/analyzer).
	Analyze func(ctx context.Context, o domain.OrganizationID, file *os.File, size int64, declaredType, fileName string) (
		analysis.Report, error)
	// Keep stores the bytes of a version that is about to be registered, if the organization's retention keeps them. Nil
	// means that no bytes are kept.
	Keep func(ctx context.Context, organization domain.OrganizationID, artifact domain.ArtifactID,
		version domain.ArtifactVersionID, content io.ReaderAt, size int64) error
	// Ready reports why nothing can be committed; the answer shows the message of a *domain.Error. Any request may ask at
	// any rate, so it must cache its result. Nil means always ready.
	Ready func(context.Context) error
	// SecretKeys encrypt webhook secrets, and invitation codes in the mail queue. None means that no webhook can be
	// created.
	SecretKeys func() domain.SecretKeys
	// MailsInvitations says that invitations are mailed if there is a secret key; otherwise the answer contains their
	// link.
	MailsInvitations bool
	// Egress decides which addresses webhook destinations may have.
	Egress webhooks.EgressPolicy
	// Publishers checks the domains that organizations say they control.
	Publishers *publishers.Checker
	// Queued is called for each shard in which a request has queued deliveries. It may be nil.
	Queued func(domain.Shard)
	// Transparency reads the published transparency log. Nil means that the service keeps no log.
	Transparency *transparency.Reader
	// PublicLog reads the same log for public pages, so that they delay no evidence. Nil means Transparency.
	PublicLog *transparency.Reader
	// Parties are shown by Independence.
	Parties Parties
	// ProofTimeout is how long evidence waits for the log's tables before it is answered without a proof; 0 means 300 ms.
	ProofTimeout time.Duration
	// Pages renders evidence reports.
	Pages *web.Site
	// Relationship is the operator's disclosure, shown at the end of the fixed text.
	Relationship map[evidence.Language]string
}

// Keys are the keys that the service signs and verifies with.
type Keys struct {
	Signer  *evidence.Signer // nil if the service must not sign
	Trusted *evidence.TrustedKeys
}

// Service is the state that all actions share. It is safe for concurrent use.
type Service struct {
	*edge.Edge
	Config
	ledger        *eventstore.Ledger
	waiters       *waiters
	singles       *fair.Semaphore[domain.OrganizationID] // single commands in progress
	preparing     *fair.Semaphore[domain.OrganizationID] // processors that prepare batches
	reports       reportTurns[domain.OrganizationID]
	publicReports reportTurns[netip.Prefix] // by network of the client
	used          *usedVersions
	records       *verifier
	// unproven and unstamped are pauses: until these times, in nanoseconds since 1970, evidence is made without asking for
	// a proof of inclusion, or for timestamps.
	unproven, unstamped atomic.Int64
	unvouched           atomic.Int64 // likewise, for the line of public pages
	vouching            vouching
}

// Actions are all actions, grouped by resource.
type Actions struct {
	*Service
	Records
	Feed
	Companies
	Allowances
	Proofs
	Comparisons
	Webhooks
	Artifacts
	Certificates
	Audit
	Administration
	Links
	People
}

// The actions of each resource.
type (
	// Records registers, reserves, finds and revokes versions of documents.
	Records struct{ *Service }
	// Feed lists the changes in a company.
	Feed struct{ *Service }
	// Companies divides an organization into companies and grants them to keys and webhooks.
	Companies struct{ *Service }
	// Allowances shows how much of an organization's allowances is used.
	Allowances struct{ *Service }
	// Proofs exports the evidence of a record and the transparency log behind it.
	Proofs struct{ *Service }
	// Comparisons compares a hash with a record, for callers without a credential too.
	Comparisons struct{ *Service }
	// Webhooks manages destinations and their deliveries.
	Webhooks struct{ *Service }
	// Artifacts registers documents and has them analysed, reviewed and approved.
	Artifacts struct{ *Service }
	// Certificates issues, verifies and revokes certificates of versions.
	Certificates struct{ *Service }
	// Audit lists the events of an organization.
	Audit struct{ *Service }
	// Administration manages keys and members.
	Administration struct{ *Service }
	// Links ties identities of an OAuth provider to members.
	Links struct{ *Service }
	// People has the actions of a person in the console on its own account.
	People struct{ *Service }
)

// New makes the actions of a service.
func New(e *edge.Edge, ledger *eventstore.Ledger, c Config) *Actions {
	s := &Service{
		Edge: e, Config: c, ledger: ledger,
		waiters: newWaiters(),
		singles: newSingles(e.Closing),
		preparing: fair.NewSemaphore[domain.OrganizationID](fair.Limits{
			Most: preparers(), Each: preparers(), Line: math.MaxInt,
		}),
		reports: newReports(e.Closing), publicReports: newPublicReports(e.Closing),
		used:    newUsedVersions(),
		records: newVerifier(),
	}
	return &Actions{
		s, Records{s}, Feed{s}, Companies{s}, Allowances{s}, Proofs{s}, Comparisons{s}, Webhooks{s}, Artifacts{s},
		Certificates{s},
		Audit{s}, Administration{s}, Links{s}, People{s},
	}
}
