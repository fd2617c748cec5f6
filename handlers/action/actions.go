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
	"integrityledger/projections/queue/webhooks"
)

// Config is what actions are made of.
type Config struct {
	Notifier *eventstore.Notifier // wakes the requests that wait for the feed
	// Keys answers the signing keys as they are now; they may be reloaded at any time.
	Keys func() Keys
	// Analyze looks at an open file of size bytes (see cmd/analyzer).
	Analyze func(ctx context.Context, o domain.OrganizationID, file *os.File, size int64, declaredType, fileName string) (
		analysis.Report, error)
	// Keep stores the bytes of a version that is about to be registered, where the organization's retention wants them
	// kept. Nil means nothing is ever kept.
	Keep func(ctx context.Context, organization domain.OrganizationID, artifact domain.ArtifactID,
		version domain.ArtifactVersionID, content io.ReaderAt, size int64) error
	// Ready reports why nothing can be committed; the answer shows the sentence of a *domain.Error. It is asked as
	// often as anybody likes, so it must remember. Nil means nothing is asked.
	Ready func(context.Context) error
	// SecretKey seals webhook secrets, and the codes of invitations for the queue of mails. Nil: no webhook can be made.
	SecretKey *domain.SecretKey
	// MailsInvitations says that invitations are mailed, where SecretKey is there too; otherwise they are answered.
	MailsInvitations bool
	// Egress judges the addresses of webhook destinations.
	Egress webhooks.EgressPolicy
	// Queued hears of each shard in which a request has queued deliveries. It may be nil.
	Queued func(domain.Shard)
	// Transparency answers what the transparency log publishes. Nil: the service keeps no log.
	Transparency *transparency.Reader
	// ProofTimeout is for how long evidence waits for the log's tables before it goes without a proof; 0 means 300 ms.
	ProofTimeout time.Duration
	// Relationship is the operator's disclosure, shown at the end of the fixed text.
	Relationship map[evidence.Language]string
}

// Keys are the keys that the service signs and verifies with.
type Keys struct {
	Signer  *evidence.Signer // nil: the service must not sign
	Trusted *evidence.TrustedKeys
}

// Service is what all actions share. It is safe for concurrent use.
type Service struct {
	*edge.Edge
	Config
	ledger    *eventstore.Ledger
	waiters   *waiters
	singles   *fair.Semaphore[domain.OrganizationID] // single commands under way
	preparing *fair.Semaphore[domain.OrganizationID] // processors that prepare batches
	used      *usedVersions
	records   *verifier
	// unproven and unstamped are, in nanoseconds since 1970, until when evidence is made without asking for a proof of
	// inclusion, and for timestamps.
	unproven, unstamped atomic.Int64
}

// Actions are all of them, by resource.
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
	// Feed shows what has changed in a company.
	Feed struct{ *Service }
	// Companies partitions an organization, and says who may use which part.
	Companies struct{ *Service }
	// Allowances show what is used of an organization's allowances.
	Allowances struct{ *Service }
	// Proofs exports what proves a record, and the transparency log behind it.
	Proofs struct{ *Service }
	// Comparisons compares a hash with a record, for anybody.
	Comparisons struct{ *Service }
	// Webhooks manages destinations, and what is delivered to them.
	Webhooks struct{ *Service }
	// Artifacts takes documents in, has them analysed, reviewed and approved.
	Artifacts struct{ *Service }
	// Certificates issues, verifies and revokes certificates of versions.
	Certificates struct{ *Service }
	// Audit lists what has happened in an organization.
	Audit struct{ *Service }
	// Administration is of keys and members.
	Administration struct{ *Service }
	// Links ties identities of an OAuth provider to members.
	Links struct{ *Service }
	// People are what a person does for itself in the console.
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
		used:    newUsedVersions(),
		records: newVerifier(),
	}
	return &Actions{
		s, Records{s}, Feed{s}, Companies{s}, Allowances{s}, Proofs{s}, Comparisons{s}, Webhooks{s}, Artifacts{s},
		Certificates{s},
		Audit{s}, Administration{s}, Links{s}, People{s},
	}
}
