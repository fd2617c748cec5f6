package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/s3blob" // s3://, by the AWS variables or the parameters of the URL
	"gocloud.dev/gcerrors"

	"integrityledger/domain"
	"integrityledger/projections/queue"
)

// contents is the blob store of the bytes that organizations have kept. It is opened when the first are to be kept or
// erased: most installations keep none.
type contents struct {
	url  string
	sync func(path string) error // brings a file or directory to the disk

	mu     sync.Mutex
	bucket *blob.Bucket
	// writing are those whose callers may have given up: a disk that hangs ends no call.
	writing atomic.Int32
}

// maxWriting is how many may be in the store's hands at once.
const maxWriting = 32

func (c *contents) open(ctx context.Context) (*blob.Bucket, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bucket == nil {
		bucket, err := blob.OpenBucket(ctx, c.url)
		if err != nil {
			return nil, fmt.Errorf("%sBLOB_URL: %w", variablePrefix, err)
		}
		c.bucket = bucket
	}
	return c.bucket, nil
}

func (c *contents) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bucket == nil {
		return nil
	}
	return c.bucket.Close()
}

func contentName(o domain.OrganizationID, v domain.ArtifactVersionID) string {
	return o.String() + "/" + v.String()
}

// keep stores the bytes of a version whose registration comes next. They are on the disk, or in the store's keeping,
// when it returns nil: a registration does not outlive its bytes in a power cut. It returns when ctx ends, also where the
// store hangs; bytes that are stored after that are erased as those of a registration that never came.
func (c *contents) keep(ctx context.Context, o domain.OrganizationID, v domain.ArtifactVersionID, content io.ReaderAt, size int64) error {
	err := errors.New("the store has not finished earlier ones")
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
		return fmt.Errorf("keep the bytes of a version: %w: %w", domain.Unavailable("The bytes cannot be kept at the moment, as the organization's retention wants it; send the request again."), err)
	}
	return nil
}

func (c *contents) store(ctx context.Context, name string, content io.ReaderAt, size int64) error {
	bucket, err := c.open(ctx)
	if err == nil {
		err = bucket.Upload(ctx, name, io.NewSectionReader(content, 0, size), &blob.WriterOptions{ContentType: "application/octet-stream"})
	}
	if err == nil {
		err = c.syncToDisk(ctx, bucket, name)
	}
	return err
}

// path is where a store of files has a name, whatever prefix its URL gives it; empty in a store of another kind.
func (c *contents) path(ctx context.Context, bucket *blob.Bucket, name string) (path string, err error) {
	if !strings.HasPrefix(c.url, fileblob.Scheme+":") {
		return "", nil
	}
	r, err := bucket.NewReader(ctx, name, &blob.ReaderOptions{BeforeRead: func(as func(any) bool) error {
		if f := (*os.File)(nil); as(&f) {
			path = f.Name()
		}
		return nil
	}})
	if err != nil {
		return "", err
	}
	return path, r.Close()
}

// settle brings a file of the store to the disk with the names that lead to it: the organization's directory and the
// store's may be as new as the file.
func (c *contents) syncToDisk(ctx context.Context, bucket *blob.Bucket, name string) error {
	path, err := c.path(ctx, bucket, name)
	if path == "" || err != nil {
		return err
	}
	store := filepath.Dir(filepath.Dir(path))
	err = errors.Join(c.sync(path), c.sync(filepath.Dir(path)), c.sync(store))
	// Where the store stands may be another's directory, which does not show what it has.
	if above := c.sync(filepath.Dir(store)); !errors.Is(above, fs.ErrPermission) {
		err = errors.Join(err, above)
	}
	return err
}

// remove deletes the bytes of a version, if they are there, and what a process that died while it wrote them has left:
// the store of files writes beside the name, with an ending, and renames.
func (c *contents) remove(ctx context.Context, o domain.OrganizationID, v domain.ArtifactVersionID) error {
	bucket, err := c.open(ctx)
	if err != nil {
		return err
	}
	names := []string{contentName(o, v)}
	unfinished := bucket.List(&blob.ListOptions{Prefix: contentName(o, v) + "."})
	for {
		found, err := unfinished.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("look for unfinished bytes of a version: %w", err)
		}
		names = append(names, found.Key)
	}
	for _, name := range names {
		if err := c.delete(ctx, bucket, name); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
			return fmt.Errorf("erase the bytes of a version: %w", err)
		}
	}
	return nil
}

// delete removes a name for good: a power cut does not bring back what the log calls erased.
func (c *contents) delete(ctx context.Context, bucket *blob.Bucket, name string) error {
	path, err := c.path(ctx, bucket, name)
	if err == nil {
		err = bucket.Delete(ctx, name)
	}
	if path == "" || err != nil {
		return err
	}
	return c.sync(filepath.Dir(path))
}

// blobURL is the configured store, or a directory in the data directory.
func (c *Config) blobURL() (string, error) {
	if c.BlobURL != "" {
		return c.BlobURL, nil
	}
	dir, err := filepath.Abs(c.inDataDir("blobs"))
	if err != nil {
		return "", fmt.Errorf("%sDATA_DIR: %w", variablePrefix, err)
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(dir), RawQuery: "create_dir=true&no_tmp_dir=true&metadata=skip&dir_file_mode=0700"}
	return u.String(), nil
}

// checkBlobURL accepts what the program has a driver for.
func checkBlobURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "file" && u.Path == "" || u.Scheme == "s3" && u.Host == "" || u.Scheme != "file" && u.Scheme != "s3" {
		return errors.New("file:///directory or s3://bucket was expected")
	}
	return nil
}

// spoolDir is where uploads lie while they are looked at: in the data directory, where there is one, because the
// system's directory for temporary files may be memory.
func (c *Config) spoolDir() (string, error) {
	if c.DatabaseURL != "" {
		return "", nil
	}
	dir := c.inDataDir("spool")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("directory of uploads: %w", err)
	}
	return dir, nil
}

// keepContent announces bytes before it stores them, so that they are erased if their registration never comes.
func (s *service) keepContent(ctx context.Context, o domain.OrganizationID, a domain.ArtifactID, v domain.ArtifactVersionID, content io.ReaderAt, size int64) error {
	if err := s.store.AnnounceContent(ctx, o, a, v, s.now()); err != nil {
		return err
	}
	return s.contents.keep(ctx, o, v, content, size)
}

// forgetAnswers deletes the answers of idempotent requests once they are too old, until ctx ends.
func (s *service) forgetAnswers(ctx context.Context) {
	look := time.NewTicker(time.Hour)
	defer look.Stop()
	for {
		now, err := s.ledger.Agreed(ctx) // a clock ahead would forget answers that are still asked for
		if err == nil {
			err = s.store.ForgetAnswers(ctx, now)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("old answers of idempotent requests stay", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

func (s *service) eraser() *queue.Eraser {
	return &queue.Eraser{EraserConfig: queue.EraserConfig{
		Pool: s.read, Ledger: s.ledger, Shards: s.installed.Shards, Log: s.log, Delete: s.contents.remove,
	}}
}
