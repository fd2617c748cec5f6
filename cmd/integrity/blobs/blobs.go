// Package blobs keeps the bytes of files that organizations want kept, in a directory or in a bucket.
package blobs

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

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"

	"integrityledger/domain"
	"integrityledger/eventstore/outbound"
)

// Store is the blob store of the bytes that organizations have kept. It is opened when the first are to be kept or
// erased: most installations keep none.
type Store struct {
	URL  string
	Sync func(path string) error // brings a file or directory to the disk

	mu     sync.Mutex
	bucket *blob.Bucket
	// writing are those whose callers may have given up: a disk that hangs ends no call.
	writing atomic.Int32
}

// maxWriting is how many may be in the store's hands at once.
const maxWriting = 32

func (c *Store) Open(ctx context.Context) (*blob.Bucket, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bucket == nil {
		var stores blob.URLMux
		stores.RegisterBucket(fileblob.Scheme, &fileblob.URLOpener{})
		stores.RegisterBucket(s3blob.Scheme, s3Opener{})
		bucket, err := stores.OpenBucket(ctx, c.URL)
		if err != nil {
			return nil, fmt.Errorf("INTEGRITY_BLOB_URL: %w", err)
		}
		c.bucket = bucket
	}
	return c.bucket, nil
}

// s3Opener opens buckets whose server is asked by a client of package outbound. The SDK's own client waits without end
// for the rest of a 101.
type s3Opener struct{}

// exchangeTimeout leaves a slow line the time for one part of an upload, 5 MiB.
const exchangeTimeout = 5 * time.Minute

// OpenBucketURL implements blob.BucketURLOpener, with the parameters of s3blob.URLOpener.
func (s3Opener) OpenBucketURL(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	var opener s3blob.URLOpener
	bucket, err := opener.OpenBucketURL(ctx, u)
	if err != nil {
		return nil, err
	}
	var client *s3.Client
	if !bucket.As(&client) {
		return nil, errors.New("the driver of s3:// has no client of S3")
	}
	c := outbound.Config{Timeout: exchangeTimeout, Answer: 16 << 20, Idle: maxWriting, Proxy: true, Plain: true}
	if own, ok := client.Options().HTTPClient.(*awshttp.BuildableClient); ok {
		c.TLS = own.GetTransport().TLSClientConfig // with the authorities that AWS_CA_BUNDLE names
	}
	bounded := outbound.New(c)
	client = s3.New(client.Options(), func(o *s3.Options) { o.HTTPClient = bounded })
	return s3blob.OpenBucket(ctx, client, u.Host, &opener.Options)
}

func (c *Store) Close() error {
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

// Keep stores the bytes of a version whose registration comes next. They are on the disk, or in the store's keeping,
// when it returns nil: a registration does not outlive its bytes in a power cut. It returns when ctx ends, also where the
// store hangs; bytes that are stored after that are erased as those of a registration that never came.
func (c *Store) Keep(ctx context.Context, o domain.OrganizationID, v domain.ArtifactVersionID, content io.ReaderAt, size int64) error {
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

func (c *Store) store(ctx context.Context, name string, content io.ReaderAt, size int64) error {
	bucket, err := c.Open(ctx)
	if err == nil {
		err = bucket.Upload(ctx, name, io.NewSectionReader(content, 0, size), &blob.WriterOptions{ContentType: "application/octet-stream"})
	}
	if err == nil {
		err = c.syncToDisk(ctx, bucket, name)
	}
	return err
}

// path is where a store of files has a name, whatever prefix its URL gives it; empty in a store of another kind.
func (c *Store) path(ctx context.Context, bucket *blob.Bucket, name string) (path string, err error) {
	if !strings.HasPrefix(c.URL, fileblob.Scheme+":") {
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

// syncToDisk brings a file of the store to the disk with the names that lead to it: the organization's directory and the
// store's may be as new as the file.
func (c *Store) syncToDisk(ctx context.Context, bucket *blob.Bucket, name string) error {
	path, err := c.path(ctx, bucket, name)
	if path == "" || err != nil {
		return err
	}
	store := filepath.Dir(filepath.Dir(path))
	err = errors.Join(c.Sync(path), c.Sync(filepath.Dir(path)), c.Sync(store))
	// Where the store stands may be another's directory, which does not show what it has.
	if above := c.Sync(filepath.Dir(store)); !errors.Is(above, fs.ErrPermission) {
		err = errors.Join(err, above)
	}
	return err
}

// Remove deletes the bytes of a version, if they are there, and what a process that died while it wrote them has left:
// the store of files writes beside the name, with an ending, and renames.
func (c *Store) Remove(ctx context.Context, o domain.OrganizationID, v domain.ArtifactVersionID) error {
	bucket, err := c.Open(ctx)
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
func (c *Store) delete(ctx context.Context, bucket *blob.Bucket, name string) error {
	path, err := c.path(ctx, bucket, name)
	if err == nil {
		err = bucket.Delete(ctx, name)
	}
	if path == "" || err != nil {
		return err
	}
	return c.Sync(filepath.Dir(path))
}

// DirectoryURL is the store in a directory, which is made where it is missing.
func DirectoryURL(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("directory of kept bytes: %w", err)
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(dir), RawQuery: "create_dir=true&no_tmp_dir=true&metadata=skip&dir_file_mode=0700"}
	return u.String(), nil
}

// CheckURL accepts what the program has a driver for.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "file" && u.Path == "" || u.Scheme == "s3" && u.Host == "" || u.Scheme != "file" && u.Scheme != "s3" {
		return errors.New("it must be file:///directory or s3://bucket")
	}
	return nil
}
