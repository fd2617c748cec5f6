package migrations

import (
	"context"

	"github.com/pressly/goose/v3"
)

// UpTo brings the database at url to the schema of an earlier program.
func UpTo(ctx context.Context, url string, version int64) error {
	return withProvider(url, func(p *goose.Provider) error {
		_, err := p.UpTo(ctx, version)
		return err
	})
}
