// Package blobs stores the bytes of files for organizations with retention, in a directory or in an S3 bucket.
package blobs

import (
	"context"
	"errors"
	"io"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
)

// Store is the blob store. It is opened when the first bytes are kept or erased: most installations keep none.
type Store struct {
	URL  string
	Sync func(path string) error // flushes a file or directory to the disk

	mu     sync.Mutex
	opened bucket
	// writing counts the writes in progress, including those whose caller has given up: a disk that hangs never returns
	// from the call.
	writing atomic.Int32
}

// maxWriting is the largest number of writes in progress.
const maxWriting = 32

// bucket holds bytes under names with slashes. Its methods may be called concurrently.
type bucket interface {
	// put stores size bytes durably, replacing earlier ones of that name. The name shows all of them or none.
	put(ctx context.Context, name string, content io.ReaderAt, size int64) error
	// remove deletes a name for good, with the bytes of unfinished writes. A missing name is no error.
	remove(ctx context.Context, name string) error
	// check returns an error unless the bucket is there and answers.
	check(ctx context.Context) error
}

func (c *Store) open() (bucket, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened == nil {
		opened, err := openURL(c.URL, c.Sync)
		if err != nil {
			return nil, say.Errorf("INTEGRITY_BLOB_URL: %w", err)
		}
		c.opened = opened
	}
	return c.opened, nil
}

func openURL(text string, sync func(path string) error) (b bucket, err error) {
	if err := CheckURL(text); err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	p := &parameters{Values: u.Query()}
	prefix := p.text("prefix")
	if u.Scheme == "file" {
		b, err = openFiles(u, p, sync)
	} else {
		b, err = openS3(u.Host, p, outbound.Config{Timeout: exchangeTimeout, Answer: 16 << 20, Idle: maxWriting})
	}
	if err != nil || prefix == "" {
		return b, err
	}
	return prefixed{b, prefix}, nil
}

// prefixed adds a prefix to every name.
type prefixed struct {
	bucket
	prefix string
}

func (b prefixed) put(ctx context.Context, name string, content io.ReaderAt, size int64) error {
	return b.bucket.put(ctx, b.prefix+name, content, size)
}

func (b prefixed) remove(ctx context.Context, name string) error {
	return b.bucket.remove(ctx, b.prefix+name)
}

// parameters are the query parameters of a store's URL. Each is read once; the remaining ones are unknown.
type parameters struct {
	url.Values
	err error
}

func (p *parameters) text(name string) string {
	value := p.Get(name)
	p.Del(name)
	return value
}

// flag reads true or false; a missing parameter is false.
func (p *parameters) flag(name string) bool {
	text := p.text(name)
	value, err := strconv.ParseBool(text)
	if err != nil && text != "" {
		p.err = errors.Join(p.err, say.Errorf("%s must be true or false, not %q", name, text))
	}
	return value
}

// ignore accepts parameters that have no effect.
func (p *parameters) ignore(names ...string) {
	for _, name := range names {
		p.Del(name)
	}
}

// finish returns an error for unknown or invalid parameters.
func (p *parameters) finish() error {
	for name := range p.Values {
		p.err = errors.Join(p.err, say.Errorf("unknown parameter %q", name))
	}
	return p.err
}

// Check returns an error unless the store is there and answers.
func (c *Store) Check(ctx context.Context) error {
	b, err := c.open()
	if err != nil {
		return err
	}
	return b.check(ctx)
}

func contentName(o domain.OrganizationID, v domain.ArtifactVersionID) string {
	return o.String() + "/" + v.String()
}

// Keep stores the bytes of a version before it is registered. When it returns nil, they are on the disk or acknowledged
// by the server, so a power failure leaves no registration without its bytes. Keep returns when ctx ends, even if the
// store hangs. Bytes stored after that are erased like the bytes of a registration that never committed.
func (c *Store) Keep(
	ctx context.Context, o domain.OrganizationID, v domain.ArtifactVersionID, content io.ReaderAt, size int64,
) error {
	err := say.New("the store has not finished earlier ones")
	if c.writing.Add(1) <= maxWriting {
		stored := make(chan error, 1)
		go func() {
			defer c.writing.Add(-1)
			stored <- c.store(ctx, contentName(o, v), content, size)
		}()
		select {
		case err = <-stored:
		case <-ctx.Done():
			err = ctx.Err()
		}
	} else {
		c.writing.Add(-1)
	}
	if err != nil {
		return say.Errorf(
			"keep the bytes of a version: %w: %w",
			domain.Unavailable(
				"The bytes cannot be stored at the moment, as the organization's retention requires; send the request again.",
			),
			err,
		)
	}
	return nil
}

func (c *Store) store(ctx context.Context, name string, content io.ReaderAt, size int64) error {
	b, err := c.open()
	if err != nil {
		return err
	}
	return b.put(ctx, name, content, size)
}

// Remove deletes the bytes of a version, if they exist, and the remains of a write that a process did not finish.
func (c *Store) Remove(ctx context.Context, o domain.OrganizationID, v domain.ArtifactVersionID) error {
	b, err := c.open()
	if err != nil {
		return err
	}
	if err := b.remove(ctx, contentName(o, v)); err != nil {
		return say.Errorf("erase the bytes of a version: %w", err)
	}
	return nil
}

// DirectoryURL returns the URL of the store in a directory, which it creates if necessary.
func DirectoryURL(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", say.Errorf("directory for kept content: %w", err)
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(dir), RawQuery: "create_dir=true&dir_file_mode=0700"}
	return u.String(), nil
}

// CheckURL accepts the URLs of directories and of buckets.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "file" && u.Path == "" || u.Scheme == "s3" && u.Host == "" ||
		u.Scheme != "file" && u.Scheme != "s3" {
		return say.New("it must be file:///directory or s3://bucket")
	}
	return nil
}
