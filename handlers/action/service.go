package action

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/edge"
)

// signer returns the signing key, or refuses with 503 if there is no trusted one.
func (s *Service) signer() (*evidence.Signer, error) {
	keys := s.Keys()
	if keys.Signer == nil || !keys.Trusted.Trusts(keys.Signer.Key()) {
		return nil, domain.Unavailable(
			"The service has no trusted signing key at the moment, so it signs nothing; send the request again later.",
		)
	}
	return keys.Signer, nil
}

// execute has the ledger decide commands of the current request, each as if it had been sent alone, and returns the
// first refusal. After the organization's minute is used up, only commands that take something away are executed. All
// others are then refused, so that a form is not saved in part because the minute ended halfway.
func (s *Service) execute(ctx context.Context, commands ...domain.Command) (err error) {
	c := edge.CallIn(ctx)
	refused := s.Room(ctx, c, len(commands))
	if refused != nil {
		all := len(commands)
		commands = slices.DeleteFunc(slices.Clone(commands), func(command domain.Command) bool {
			return !domain.TakesAway(command)
		})
		if len(commands) == 0 {
			return refused
		}
		if len(commands) == all {
			refused = nil
		}
	}
	for _, answer := range s.ledger.Execute(ctx, commands...) {
		s.Reach(c, answer)
		if err == nil {
			err = answer.Err
		}
	}
	return cmp.Or(err, refused)
}

// done executes a command and returns its outcome as show makes it. After an error, the command may still be in
// progress.
func done[Result any](
	ctx context.Context, s *Service, command domain.Command, show func() Result,
) (shown Result, err error) {
	if err = s.execute(ctx, command); err == nil {
		shown = show()
	}
	return shown, err
}

// Readiness refuses if the service cannot take registrations: it asks Ready, and checks for a signing key.
func (s *Service) Readiness(ctx context.Context) error {
	if s.Ready != nil {
		if err := s.Ready(ctx); err != nil {
			if edge.Refusal(err) == nil {
				err = fmt.Errorf("%w: %w", domain.Unavailable("The database is not ready."), err)
			}
			return err
		}
	}
	_, err := s.signer()
	return err
}
